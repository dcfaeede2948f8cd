"""What a learner takes in, with real channels: which rows are kept out, and when there are too many of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from spreeze.channels import Channels
from spreeze.channels.brief import Brief
from spreeze.channels.control import ControlChannel
from spreeze.channels.metrics import MetricsChannel
from spreeze.channels.rejected_rows import MAX_MAGNITUDE, what_was_rejected
from spreeze.channels.spaces import ContinuousActions, Spaces
from spreeze.channels.transitions import RingChannel, RowLayout, Rows
from spreeze.channels.weights import WeightsChannel
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.errors import UnusableData
from spreeze.learning.intake import VERDICT_ROWS, WINDOW_ROWS, Intake

LAYOUT = RowLayout(3, 2)
SPACES = Spaces(
    {"kind": "box", "shape": [3]}, ContinuousActions(np.full(2, -1, np.float32), np.ones(2, np.float32), (2,))
)
RING_ROWS = 4096


class Door:
    """An intake, and who writes to it."""

    def __init__(self, folder: Path) -> None:
        self._channels = Channels((RingChannel("test"),), WeightsChannel(folder), MetricsChannel(), ControlChannel())
        self._channels.transitions[0].allocate(LAYOUT, RING_ROWS)
        self._channels.control.order(32, 1, rings=1, envs_at_work=1)
        self.counters: NDArray[Any] = self._channels.metrics.learner
        config = Config("Pendulum-v1")
        spec = Brief(0, 0, config, EnvSpec(config.env), SPACES, folder, time.monotonic(), channels=self._channels)
        self._intake = Intake(spec, LAYOUT, self.counters, 0)
        self._writer = self._channels.transitions[0].writer()

    def bring(self, rows: Rows) -> Rows:
        """Write rows and return those that are let in."""
        self._writer.write(rows, lambda: False)
        return np.concatenate([np.empty((0, LAYOUT.width)), *(block.copy() for block in self._intake.usable_rows())])

    def count(self, name: str) -> int:
        return int(self.counters[name][0])

    def close(self) -> None:
        self._writer.close(deliver=False)
        self._channels.close()


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    made = Door(tmp_path)
    yield made
    made.close()


def good_rows(count: int) -> Rows:
    return np.random.default_rng(0).normal(size=(count, LAYOUT.width)).astype(np.float32)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, -2 * MAX_MAGNITUDE])
@pytest.mark.parametrize(
    ("column", "name"), [(1, "observation"), (4, "action"), (5, "reward"), (7, "next observation")]
)
def test_a_bad_number_keeps_its_row_out_and_is_named(door: Door, value: float, column: int, name: str) -> None:
    rows = good_rows(100)
    rows[[3, 50], column] = value
    taken = door.bring(rows)
    assert np.array_equal(taken, np.delete(rows, [3, 50], axis=0))
    assert [door.count(f"rows_{what}") for what in ("consumed", "stored", "rejected")] == [100, 98, 2]
    said = what_was_rejected("Pendulum-v1", LAYOUT, door.counters[0])
    what = "numbers beyond 1e+15" if np.isfinite(value) else "NaN or infinity"
    assert said == f"Pendulum-v1 gives {what} in its {name}, in 2 transitions so far"


def test_large_numbers_that_can_be_learnt_from_are_let_in(door: Door) -> None:
    rows = good_rows(10)
    rows[:, LAYOUT.reward] = [0.9 * MAX_MAGNITUDE, -0.9 * MAX_MAGNITUDE] * 5
    assert len(door.bring(rows)) == 10
    assert door.count("rows_rejected") == 0


def test_squares_of_what_is_let_in_fit_a_float32() -> None:
    of_returns = np.full(8192, MAX_MAGNITUDE / (1 - 0.99), np.float32)
    assert np.isfinite(np.sum(of_returns**2))


def test_mostly_bad_rows_end_it_with_field_and_environment(door: Door) -> None:
    rows = good_rows(VERDICT_ROWS)
    rows[: VERDICT_ROWS // 2 + 1, LAYOUT.reward] = np.nan
    with pytest.raises(UnusableData, match="Pendulum-v1 gives NaN or infinity in its reward"):
        door.bring(rows)


def test_an_environment_that_breaks_late_is_noticed_too(door: Door) -> None:
    for _ in range(WINDOW_ROWS // 1000):
        door.bring(good_rows(1000))
    broken = good_rows(1000)
    broken[:, LAYOUT.observation] = np.inf
    # A lost episode is no verdict, so many rows are.
    assert len(door.bring(broken)) == 0
    for _ in range(WINDOW_ROWS // 1000 - 2):
        door.bring(broken)
    with pytest.raises(UnusableData, match="in its observation"):
        door.bring(broken)


class EmptyBlocks:
    """A reader of a channel that may yield blocks without rows, as a queue does."""

    position = 0

    def read(self, until: int | None = None) -> Iterator[Rows]:  # noqa: ARG002 (as all readers have it)
        yield good_rows(0)


def test_blocks_without_rows_are_taken(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door._intake, "_readers", [EmptyBlocks()])
    assert list(door._intake.usable_rows()) == []
    assert door.count("rows_consumed") == 0
