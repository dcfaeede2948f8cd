"""The supervisor's side of checkpoints, and its rule for learners that fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spreeze.channels.control import ControlChannel
from spreeze.channels.metrics import MetricsChannel
from spreeze.config.run_settings import RunSettings
from spreeze.errors import CheckpointError, LearnerFailed
from spreeze.runs.checkpoint_counters import ROWS, WORK, counters_of
from spreeze.runs.checkpoint_format import Manifest, describe, newest_checkpoints, state_path
from spreeze.runs.progress import SAMPLER_SUMS, Progress
from spreeze.supervision.checkpoint_orders import CheckpointOrders, restore_counters
from spreeze.supervision.learner_restarts import MAX_RESTARTS, LearnerRestarts

SUMS = {name: 3.0 + at for at, name in enumerate(SAMPLER_SUMS)}
PROGRESS = Progress(
    {"env": "Pendulum-v1", "batch_size": "auto"},
    RunSettings(2, 16, 64, 1, False),
    12.5,
    best_return=-1.5,
    samplers=SUMS,
)


def report(folder: Path, number: int, part: str = "all", **counters: int) -> dict[str, Any]:
    path = state_path(folder, number, part)
    path.write_bytes(part.encode())
    state = describe(path)
    return {
        "number": number,
        "role": part,
        "state": {"name": state.name, "byte_count": state.byte_count, "checksum": state.checksum},
        "extents": [[0, 10, 7]] if part != "actor" else [],
        "row_width": 4,
        "counters": {**dict.fromkeys((*ROWS, *WORK), 1), **counters},
    }


def test_the_first_is_ordered_soon_and_the_others_at_the_interval(tmp_path: Path) -> None:
    control = ControlChannel()
    checkpoints = CheckpointOrders(tmp_path, 100.0, control, 1)
    checkpoints.turn(1000.0)
    assert control.checkpoint == (0, 0)
    checkpoints.turn(1020.0)
    assert control.checkpoint == (1, 0)
    checkpoints.turn(1500.0)
    assert control.checkpoint == (1, 0)  # the first is not there yet
    assert checkpoints.take(report(tmp_path, 1), PROGRESS) is not None
    checkpoints.turn(1500.0)
    assert control.checkpoint == (2, 0)
    assert control.last_checkpoint == (0, 0)


def test_a_checkpoint_is_valid_once_both_sides_have_reported(tmp_path: Path) -> None:
    checkpoints = CheckpointOrders(tmp_path, 1.0, ControlChannel(), 2)
    checkpoints.order()
    assert checkpoints.take(report(tmp_path, 1, "actor", updates=30), PROGRESS) is None
    assert newest_checkpoints(tmp_path) == []
    assert checkpoints.take(report(tmp_path, 1, "critic", updates=40, rows_stored=9), PROGRESS) is not None
    (manifest,) = newest_checkpoints(tmp_path)
    assert manifest == checkpoints.kept[0]
    assert counters_of(manifest, "critic")["updates"] == 40
    assert counters_of(manifest, "actor")["updates"] == 30
    assert counters_of(manifest, "actor")["rows_stored"] == 9
    assert Progress.of(manifest.progress) == PROGRESS


def test_what_was_ordered_of_a_learner_that_is_gone_is_ignored(tmp_path: Path) -> None:
    checkpoints = CheckpointOrders(tmp_path, 1.0, ControlChannel(), 1)
    checkpoints.order()
    late = report(tmp_path, 1)
    checkpoints.forget_order()
    assert checkpoints.take(late, PROGRESS) is None
    checkpoints.order()
    assert checkpoints.take(late, PROGRESS) is None
    assert checkpoints.take(report(tmp_path, 2), PROGRESS) is not None
    assert [manifest.number for manifest in newest_checkpoints(tmp_path)] == [2]


def test_no_number_is_used_twice(tmp_path: Path) -> None:
    state_path(tmp_path, 7, "all").write_bytes(b"of a checkpoint that never was")
    control = ControlChannel()
    CheckpointOrders(tmp_path, 1.0, control, 1).order(at_end=True)
    assert control.last_checkpoint == (8, 0)


def test_none_is_ordered_where_none_is_wanted(tmp_path: Path) -> None:
    control = ControlChannel()
    checkpoints = CheckpointOrders(tmp_path, 0.0, control, 1)
    checkpoints.order(at_end=True)
    assert not checkpoints.is_under_way
    assert control.last_checkpoint == (0, 0)


def test_counters_stand_where_they_stood_before_any_process_is_there() -> None:
    counters = {**dict.fromkeys((*ROWS, *WORK), 5), "rows_consumed": 9}
    metrics = MetricsChannel()
    restore_counters(metrics, Manifest(1, (), (), 4, counters), PROGRESS)
    assert metrics.learner["updates"][0] == 5
    assert metrics.learner["steps_offset"][0] == 9
    assert metrics.samplers["episodes"].sum() == SUMS["episodes"]
    assert metrics.actor["updates"][0] == 0


@pytest.mark.parametrize(
    "change",
    [
        {"wall_s": "long"},
        {"wall_s": float("inf")},
        {"session": None},
        {"samplers": {}},
        {"asked": 3},
        {"settings": {}},
        {"settings": {**PROGRESS.settings._asdict(), "samplers": -1}},
        {"settings": {**PROGRESS.settings._asdict(), "pinned": 1}},
    ],
)
def test_progress_that_is_none_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError):
        Progress.of({**PROGRESS.as_json(), **change})


def failure(error: str = "") -> LearnerFailed:
    return LearnerFailed("learner", "it was killed by SIGKILL", error=error)


def test_a_learner_may_fail_some_times_between_two_checkpoints() -> None:
    starts = LearnerRestarts()
    for checkpoint in range(5):
        decisions = [starts.may_start_again(failure(), checkpoint, True) for _ in range(MAX_RESTARTS + 1)]
        assert decisions == [True] * MAX_RESTARTS + [False]


def test_divergence_is_rolled_back_once_for_each_checkpoint() -> None:
    starts = LearnerRestarts()
    decisions = [
        starts.may_start_again(failure("FloatingPointError"), checkpoint, True) for checkpoint in (0, 1, 1, 2)
    ]
    assert decisions == [False, True, False, True]


@pytest.mark.parametrize(
    ("error", "checkpoint", "has_updates", "expected"),
    [
        ("RuntimeError", 0, False, False),  # it would raise again
        ("", 0, False, True),  # killed, perhaps by chance
        ("RuntimeError", 0, True, True),
        ("RuntimeError", 1, True, True),
        ("CheckpointError", 1, True, True),  # there may be another
        ("EnvironmentSetupError", 1, True, False),
    ],
)
def test_what_raises_on_purpose_or_at_once_is_not_started_again(
    error: str, checkpoint: int, has_updates: bool, expected: bool
) -> None:
    assert LearnerRestarts().may_start_again(failure(error), checkpoint, has_updates) is expected
