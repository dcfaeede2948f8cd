"""A calendar that jumps changes nothing in a run: waits, limits and rates are counted on a clock that only rises."""

from __future__ import annotations

import ast
from pathlib import Path

import spreeze

# Where the calendar is what is wanted: the dates in files, and the ages of processes, which the system tells so.
CALENDAR = {
    "host/hardware.py",
    "adapt/remember.py",
    "commands/bench/machine.py",
    "commands/overview.py",
    "views/dashboard/runs.py",
    "views/tensorboard.py",
    "runs/journal_reader.py",
    "runs/run_folder.py",
    "runs/run_groups.py",
    "views/trackers.py",
}


def test_the_calendar_is_asked_only_where_a_date_is_meant() -> None:
    package = Path(spreeze.__file__).parent
    asking = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if _asks_calendar(ast.parse(path.read_text()))
    }
    assert asking <= CALENDAR, asking - CALENDAR


def _asks_calendar(tree: ast.AST) -> bool:
    names = {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    return bool(
        names & {"time.time", "time.time_ns", "time.strftime", "time.localtime", "datetime.now", "datetime.utcnow"}
    )
