from __future__ import annotations

from typing import Any

import pytest

from spreeze.runs.journal_reader import State
from spreeze.views.amounts import number
from spreeze.views.dashboard import formatting


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (312.0, "312"),
        (35.8, "35.8"),
        (9876.0, "9,876"),
        (43_216.0, "43.2 k"),
        (999_960.0, "1.00 M"),
        (1_250_000.0, "1.25 M"),
        (-12_000.0, "−12.0 k"),
    ],
)
def test_counts(value: float | None, text: str) -> None:
    assert formatting.count(value) == text


def test_times_and_amounts_have_units() -> None:
    assert formatting.seconds(0.0642) == "64 ms"
    assert formatting.seconds(1.25) == "1.2 s"
    assert formatting.duration(25.4) == "25 s"
    assert formatting.duration(185) == "3:05 min"
    assert formatting.duration(3723) == "1:02:03 h"
    assert formatting.byte_count(701_034_496) == "701 MB"
    assert formatting.byte_count(1.25e9) == "1.2 GB"
    assert formatting.share(0.123) == "12%"
    assert formatting.score(-150.44) == "−150.4"
    assert formatting.score(12_345.6) == "12,346"
    assert formatting.decimal(-0.0004, 2) == "0.00"


@pytest.mark.parametrize("value", [None, "3", True, float("nan"), float("inf"), [1], {}])
def test_what_is_no_number_is_none(value: Any) -> None:
    assert number({"x": value}, "x") is None
    assert number({}, "x") is None
    assert number(None, "x") is None


UNDER_WAY = {"version": 12_345, "played": 3, "episodes": 10, "mean_return": -12.34}


@pytest.mark.parametrize(
    ("evaluating", "said"),
    [
        (UNDER_WAY, "evaluating version 12,345: 3 of 10 episodes, mean so far −12.3"),
        ({**UNDER_WAY, "mean_return": None}, "evaluating version 12,345: 3 of 10 episodes"),
        ({**UNDER_WAY, "played": "<b>"}, ""),
        ({**UNDER_WAY, "version": 1e300}, ""),
        ({}, ""),
        ([], ""),
        (None, ""),
    ],
)
def test_an_evaluation_under_way(evaluating: object, said: str) -> None:
    assert formatting.under_way_text(evaluating) == said


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("starting", "starting"),
        ("running", "evaluator are running"),
        ("gone", "folder of this run is gone"),
        ("silent", "killed, or it hangs"),
        ("failed", "sampler 0 failed: ValueError"),
    ],
)
def test_states_in_words(state: State, expected: str) -> None:
    assert expected in formatting.state_text(state, {}, "sampler 0 failed: ValueError")


def test_a_finished_run_says_what_it_reached() -> None:
    summary = {"stop_reason": "target_return", "best_return": -143.2, "env_steps": 43_216, "wall_s": 24.8}
    said = formatting.state_text("finished", summary, None)
    assert said == "the target return was reached · best return −143.2 · 43.2 k env steps · in 25 s"
    assert formatting.state_text("finished", {"stop_reason": "a new one"}, None) == "a new one"


def test_events_in_words() -> None:
    choice = {"kind": "choice", "setting": "samplers", "value": 4, "reason": "4 cores"}
    assert formatting.event_text(choice) == "samplers = 4: 4 cores"
    assert formatting.event_text({"kind": "adapt", "reason": "kept 1 -> 2"}) == "kept 1 → 2"
    assert formatting.event_text({}) == "no reason given"
