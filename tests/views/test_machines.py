from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from spreeze.runs.records import ClusterFigures, MachineFigures
from spreeze.views.dashboard.flow import Waits, find_bottleneck
from spreeze.views.machines import count_machines, describe_machines, link_that_waits


def figures(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "name": "alpha",
        "state": "at_work",
        "samplers": 14,
        "rows_hz": 120_000.0,
        "bytes_hz": 20.0 * 2**20,
        "policy_lag_s": 0.31,
        "round_trip_s": 0.002,
        "waits_for": None,
        "rows_sampled": 5000,
        "rows_arrived": 4900,
        "rows_lost": 100,
        "rows_repeated": 0,
    }
    machine = MachineFigures(**(fields | changes))
    return asdict(ClusterFigures(machine.rows_sampled, machine.rows_arrived, machine.rows_lost, 0, (machine,)))


def test_a_machine_is_shown_with_its_samplers_rates_lag_and_state() -> None:
    (name, text), rows = describe_machines(figures())
    assert name == "alpha"
    assert text == "at work, 14 samplers, 120.0k rows/s, 20 MB/s, policy lag 0.31 s"
    assert rows == ("Rows of other machines", "5,000 sampled, 100 lost")


def test_a_machine_that_is_away_has_no_rates() -> None:
    assert describe_machines(figures(state="away"))[0] == ("alpha", "away")
    assert (count_machines(figures()), count_machines(figures(state="away"))) == (1, 0)


@pytest.mark.parametrize(
    "damaged",
    [
        None,
        3,
        [],
        {},
        {"machines": 1},
        {"machines": [None, {}]},
        figures(samplers="x", rows_hz=float("nan"), state=[]),
    ],
)
def test_what_is_damaged_is_left_out(damaged: object) -> None:
    describe_machines(damaged)
    assert link_that_waits(damaged) is None


def test_a_link_that_rows_wait_for_is_the_bottleneck() -> None:
    line = {"updates": 10, "cluster": figures(waits_for="link")}
    assert find_bottleneck(line, Waits(rings=0.4)).sentence.endswith("the link to alpha is the bottleneck")
    line = {"updates": 10, "cluster": figures(waits_for="learner")}
    assert find_bottleneck(line, Waits(rings=0.4)).sentence.endswith("the learner is the bottleneck")
