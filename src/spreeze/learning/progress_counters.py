"""Counts updates: launched ones here, finished ones in the metrics channel.

On a GPU an update is finished some time after its launch: the counters show what the GPU has done.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from numpy.typing import NDArray

from spreeze.learning.transfers import Flight
from spreeze.runs.checkpoint_counters import ROWS, WORK


class ProgressCounters:
    """The counters of a learner's updates."""

    def __init__(self, counters: NDArray[Any], device: torch.device) -> None:
        self._counters, self._flight = counters, Flight(device)
        self.launched = 0
        """Updates that were launched, with those of the checkpoint that the learner started from."""
        self._started_at = 0

    @property
    def has_launched(self) -> bool:
        """Whether this process has launched an update."""
        return self.launched > self._started_at

    def start_at(self, updates: int) -> None:
        """Count from this many updates, those of a checkpoint."""
        self.launched = self._started_at = updates

    def add(self, launched: int, batch_size: int) -> None:
        """Count a launch; on a GPU, wait until at most `Flight.AHEAD` launches are under way."""
        self.launched += launched
        self._count_finished(self._flight.add(launched), batch_size)

    def settle(self, batch_size: int) -> None:
        """Wait for all updates that are under way. batch_size: the one that they were launched with."""
        self._count_finished(self._flight.finished(), batch_size)

    def snapshot(self, batch_size: int) -> dict[str, float]:
        """Return what a checkpoint records: the counters as they will be after the updates that are under way."""
        snapshot = {name: self._counters[name][0].item() for name in (*ROWS, *WORK)}
        under_way = self.launched - snapshot["updates"]
        return {
            **snapshot,
            "updates": self.launched,
            "update_frames": snapshot["update_frames"] + under_way * batch_size,
        }

    def _count_finished(self, updates: int, batch_size: int) -> None:
        if not updates:
            return
        if not self._counters["first_update_at"][0]:
            self._counters["first_update_at"] = time.monotonic()
        self._counters["batch_size"] = batch_size
        self._counters["updates"] += updates
        self._counters["update_frames"] += updates * batch_size
