from __future__ import annotations

from typing import Any

import pytest

from spreeze.runs.journal_reader import State
from spreeze.views.dashboard import words


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
    assert words.count(value) == text


def test_times_and_amounts_have_units() -> None:
    assert words.seconds(0.0642) == "64 ms"
    assert words.seconds(1.25) == "1.2 s"
    assert words.duration(25.4) == "25 s"
    assert words.duration(185) == "3:05 min"
    assert words.duration(3723) == "1:02:03 h"
    assert words.byte_count(701_034_496) == "701 MB"
    assert words.byte_count(1.25e9) == "1.2 GB"
    assert words.share(0.123) == "12%"
    assert words.score(-150.44) == "−150.4"
    assert words.score(12_345.6) == "12,346"
    assert words.decimal(-0.0004, 2) == "0.00"


@pytest.mark.parametrize("value", [None, "3", True, float("nan"), float("inf"), [1], {}])
def test_what_is_no_number_is_none(value: Any) -> None:
    assert words.number({"x": value}, "x") is None
    assert words.number({}, "x") is None
    assert words.number(None, "x") is None


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("starting", "starting"),
        ("running", "at work"),
        ("gone", "folder of this run is gone"),
        ("silent", "killed, or it hangs"),
        ("failed", "sampler 0 failed: ValueError"),
    ],
)
def test_states_in_words(state: State, expected: str) -> None:
    assert expected in words.state_words(state, {}, "sampler 0 failed: ValueError")


def test_a_finished_run_says_what_it_reached() -> None:
    summary = {"stop_reason": "target_return", "best_return": -143.2, "env_steps": 43_216, "wall_s": 24.8}
    said = words.state_words("finished", summary, None)
    assert said == "the target return was reached · best return −143.2 · 43.2 k env steps · in 25 s"
    assert words.state_words("finished", {"stop_reason": "a new one"}, None) == "a new one"


def test_events_in_words() -> None:
    choice = {"kind": "choice", "setting": "samplers", "value": 4, "reason": "4 cores"}
    assert words.event_words(choice) == "samplers = 4: 4 cores"
    assert words.event_words({"kind": "adapt", "reason": "kept 1 -> 2"}) == "kept 1 → 2"
    assert words.event_words({}) == "no reason given"
