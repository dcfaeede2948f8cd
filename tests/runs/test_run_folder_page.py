"""docs/run-folder.md lists what runs write: kinds of events, fields of journals and of the summary, ways to end."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

from spreeze.runs.records import MEASURED, Evaluation
from spreeze.runs.result import Result, StopReason

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "run-folder.md").read_text()


def listed(text: str) -> set[str]:
    """Return the names in backticks, also those with commas between them."""
    return {name for names in re.findall(r"`([\w, ]+)`", text) for name in names.split(", ")}


def row(first: str) -> str:
    (found,) = (line for line in PAGE.splitlines() if line.startswith(f"| `{first}`"))
    return found


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def recorded_kinds() -> set[str]:
    """Return the kinds of all events that the code records, or has its processes send."""
    kinds: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).endswith("record_event"):
                kinds |= _texts(node.args[0])
            elif isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if key is not None and _texts(key) == {"event"}:
                        kinds |= _texts(value)
    return kinds


def _texts(node: ast.expr) -> set[str]:
    if isinstance(node, ast.IfExp):
        return _texts(node.body) | _texts(node.orelse)
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()


def test_every_kind_of_event_is_listed_and_no_other() -> None:
    rows = re.findall(r"^\| (`.+?`) \|", section("Events"), re.MULTILINE)
    documented = set().union(*map(listed, rows)) - {"kind"}
    kinds = recorded_kinds()
    assert len(kinds) > 10
    assert documented == kinds


def test_every_field_is_listed() -> None:
    assert listed(section("Units")) >= MEASURED
    assert listed(row("evaluations.jsonl") + row("metrics.jsonl")) >= {field.name for field in fields(Evaluation)}
    assert listed(row("summary.json")) == {field.name for field in fields(Result)} - {"run_dir"}


def test_every_way_to_end_is_listed() -> None:
    (sentence,) = re.findall(r"`stop_reason` is one of (.+?)\.\n", PAGE, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", sentence)) == set(get_args(StopReason))
