from __future__ import annotations

import io
from dataclasses import asdict, fields, replace
from typing import Any

import pytest
from rich.console import Console

from spreeze.runs.records import Lateness, Measurement, Punctuality
from spreeze.views.dashboard.markup import machine
from spreeze.views.punctuality import describe_punctuality, summarise_punctuality
from spreeze.views.terminal import LineDisplay

REALTIME = Punctuality(2000, 3, Lateness(1e-5, 1e-4, 2e-4), Lateness(2e-5, 3e-4, 0.0051))


def test_late_steps_and_jitter_are_shown() -> None:
    assert describe_punctuality(asdict(REALTIME)) == [
        ("Late steps", "3 of 2,000"),
        ("Jitter, last second", "p50 0.01 ms   p99 0.10 ms   max 0.20 ms"),
        ("Jitter, whole run", "p50 0.02 ms   p99 0.30 ms   max 5.10 ms"),
    ]
    assert "3 of 2,000" in machine({"realtime": asdict(REALTIME)})


@pytest.mark.parametrize("damaged", [None, 3, {}, {"steps": "x", "late_steps": True, "run": 5, "last_second": {}}])
def test_of_damaged_lines_nothing_is_shown(damaged: Any) -> None:
    assert describe_punctuality(damaged) == []
    machine({"realtime": damaged})


def test_the_terminal_says_how_many_steps_are_late() -> None:
    blank: dict[str, Any] = {field.name: 1 for field in fields(Measurement)}
    plain = Measurement(**{**blank, "figures": {}, "cpu_by_role": {}, "realtime": None, "cluster": None})
    assert summarise_punctuality(plain) == ""
    said = "3 of 2,000 steps late, jitter p99 0.30 ms, max 5.10 ms"
    assert summarise_punctuality(replace(plain, realtime=REALTIME)) == said
    waiting = replace(plain, realtime=replace(REALTIME, waits_for_person=True))
    assert summarise_punctuality(waiting) == f"the environment waits for a person; {said}"
    console = Console(file=io.StringIO(), width=300, record=True)
    display = LineDisplay(console)
    display.show(waiting)
    assert summarise_punctuality(waiting) in console.export_text()
