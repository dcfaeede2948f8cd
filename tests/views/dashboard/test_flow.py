from __future__ import annotations

from typing import Any

import pytest
from folders import evaluation, metric

from spreeze.views.dashboard.flow import Waits, describe_flow, find_bottleneck, recent_waits


def lines(**rates: float) -> list[dict[str, Any]]:
    """Twenty seconds in which samplers and learner wait so many seconds a second."""
    idle = {"ring_wait_s": 0.0, "ratio_wait_s": 0.0, "learner_wait_s": 0.0}
    return [metric(i, **{name: rate * i for name, rate in {**idle, **rates}.items()}) for i in range(1, 21)]


def test_waits_are_shares_of_the_time_of_each_process() -> None:
    assert recent_waits(lines(ring_wait_s=0.48, learner_wait_s=0.25)) == Waits(
        rings=pytest.approx(0.12), ratio=0.0, learner=pytest.approx(0.25)
    )


def test_waits_are_those_of_the_last_seconds() -> None:
    early = [metric(i, ring_wait_s=4.0 * i, num_samplers=1) for i in range(10)]
    late = [metric(i, ring_wait_s=40.0, num_samplers=1) for i in range(10, 40)]
    assert recent_waits([*early, *late]).rings == 0.0


@pytest.mark.parametrize(
    "damaged", [[], [{}], [{"wall_s": "x"}], [{"wall_s": 1.0}], [{"wall_s": 5.0}, {"wall_s": 1.0}]]
)
def test_nothing_is_known_of_damaged_lines(damaged: list[dict[str, Any]]) -> None:
    assert recent_waits(damaged) == Waits()
    describe_flow(damaged, None, {}, is_running=True, viewer="live")


@pytest.mark.parametrize(
    ("rates", "node", "sentence"),
    [
        (
            {"ring_wait_s": 0.48},
            "learner",
            "samplers wait for room in the rings 12% of the time: the learner is the bottleneck",
        ),
        (
            {"ratio_wait_s": 3.6},
            "learner",
            "samplers wait 90% of the time, to keep to min_updates_per_step: the learner is the bottleneck",
        ),
        (
            {"learner_wait_s": 0.3},
            "samplers",
            "the learner waits 30% of the time, to stay within max_updates_per_step: the samplers are the bottleneck",
        ),
        ({"ring_wait_s": 0.1}, None, "no process waits: samplers and learner run at full speed"),
    ],
)
def test_the_bottleneck_in_words(rates: dict[str, float], node: str | None, sentence: str) -> None:
    flow = describe_flow(lines(**rates), evaluation(20), {}, is_running=True, viewer="live")
    assert flow.sentence == sentence
    assert [part.key for part in flow.nodes if part.is_bottleneck] == ([node] if node else [])


def test_busy_processors_are_bottlenecks_where_nobody_waits() -> None:
    assert "the CPU is the bottleneck" in find_bottleneck(metric(20, cpu_percent=99.0), Waits()).sentence
    assert find_bottleneck(metric(20, gpu_percent=98.0), Waits()).node == "learner"
    assert "warming up" in find_bottleneck(metric(20, updates=0), Waits()).sentence
    assert "nothing" in find_bottleneck(None, Waits()).sentence


@pytest.mark.parametrize(("updates", "shown"), [(0, "no version yet"), (300, "none evaluated yet")])
def test_weights_without_an_evaluation(updates: int, shown: str) -> None:
    flow = describe_flow([metric(1, updates=updates)], None, {}, is_running=True, viewer="live")
    assert next(node.lines for node in flow.nodes if node.key == "weights") == (shown,)


def test_rates_and_levels_are_written_on_the_flow() -> None:
    config = {"replay_rows": 126_000, "publish_interval_s": 0.25}
    newest = [*lines(), metric(20, sampling_hz=3054.7, update_hz=305.5, update_frame_hz=78_208.0, policy_lag_s=0.064)]
    flow = describe_flow(newest, evaluation(20), config, is_running=True, viewer="live")
    written = {node.key: (node.title, *node.lines) for node in flow.nodes}
    assert written["samplers"][:2] == ("4 samplers", "3,055 env steps/s")
    assert written["learner"][1:3] == ("306 updates/s", "× 256 = 78.2 k/s")
    assert written["weights"] == ("Weights", "version 81", "one every 250 ms")
    levels = {node.key: node.level for node in flow.nodes}
    assert levels["replay"] == pytest.approx(0.5)
    assert levels["rings"] == 0.3
    assert flow.edges[-1].label == "policy lag 64 ms"
    assert all(edge.moves for edge in flow.edges)


def test_nothing_moves_after_the_end() -> None:
    flow = describe_flow(lines(), evaluation(20), {}, is_running=False, viewer="only while running")
    assert not any(edge.moves for edge in flow.edges)


def test_a_run_without_the_newer_fields_is_drawn_too() -> None:
    old = {name: value for name, value in metric(5).items() if name not in ("ring_fill", "cpu_cores", "cpu_by_role")}
    flow = describe_flow([old], None, {}, is_running=True, viewer="live")
    assert {node.key: node.level for node in flow.nodes}["rings"] is None


def test_an_environment_that_waits_for_a_person_is_the_bottleneck() -> None:
    waiting = {"realtime": {"waits_for_person": True}}
    flow = describe_flow([{**line, **waiting} for line in lines()], None, {}, is_running=True, viewer="off")
    assert flow.sentence == "the environment waits for a person"
    assert flow.nodes[0].is_bottleneck
    assert "the environment waits for a person" in flow.nodes[0].lines
