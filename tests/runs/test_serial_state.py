from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spreeze.channels.weights import read_weights, write_weights
from spreeze.errors import CheckpointError
from spreeze.runs import serial_state
from spreeze.runs.checkpoint_format import Manifest, StateFile, state_path
from spreeze.runs.serial_state import SerialState

STATE = SerialState(
    generation=3,
    version=41,
    evaluations=2,
    evaluated=40,
    evaluation_due_at=5000,
    held_back=8,
    samplers=({"ages": np.arange(3), "actions": np.ones((2, 1), np.float32)}, {"ages": np.arange(2)}),
)


def manifest_of(*reports: dict[str, object]) -> Manifest:
    states = tuple(StateFile(**report["state"]) for report in reports)  # type: ignore[arg-type]
    return Manifest(7, states, (), 0, {})


def test_what_was_written_is_read(tmp_path: Path) -> None:
    report = serial_state.write(tmp_path, 7, STATE)
    assert (report["number"], report["role"]) == (7, "serial")
    found = serial_state.read(tmp_path, manifest_of(report))
    assert found is not None
    np.testing.assert_equal(found.samplers, STATE.samplers)
    assert {**vars(found), "samplers": ()} == {**vars(STATE), "samplers": ()}


def test_a_checkpoint_of_several_processes_has_none(tmp_path: Path) -> None:
    serial_state.write(tmp_path, 7, STATE)  # left by somebody: no manifest names it
    assert serial_state.read(tmp_path, manifest_of()) is None


def test_a_disk_that_refuses_is_reported(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text("a file where the folder should be")
    report = serial_state.write(tmp_path / "checkpoint", 7, STATE)
    assert report["number"] == 7
    assert report["failure"]


@pytest.mark.parametrize(
    "change",
    [
        {"generation": "-1"},
        {"version": "many"},
        {"samplers": "9" * 12},
        {"samplers": "1"},  # there are two
        {"held_back": None},
        {"evaluations": "1e3"},
    ],
    ids=str,
)
def test_a_file_that_says_something_else_is_refused(change: dict[str, str | None], tmp_path: Path) -> None:
    report = serial_state.write(tmp_path, 7, STATE)
    path = state_path(tmp_path, 7, serial_state.PART)
    tensors, about = read_weights(path)
    changed = {name: value for name, value in {**about, **change}.items() if value is not None}
    write_weights(path, tensors, changed)
    with pytest.raises(CheckpointError, match="cannot be used"):
        serial_state.read(tmp_path, manifest_of(report))


def test_numbers_that_are_none_and_damaged_bytes_are_refused(tmp_path: Path) -> None:
    report = serial_state.write(tmp_path, 7, STATE)
    path = state_path(tmp_path, 7, serial_state.PART)
    tensors, about = read_weights(path)
    write_weights(path, {**tensors, "0.actions": np.full((2, 1), np.nan, np.float32)}, about)
    with pytest.raises(CheckpointError, match="NaN"):
        serial_state.read(tmp_path, manifest_of(report))
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CheckpointError):
        serial_state.read(tmp_path, manifest_of(report))
