"""Launches updates, with the batch size that is ordered or the largest that fits the device's memory."""

from __future__ import annotations

import sys
from typing import Any

import torch
from numpy.typing import NDArray

from spreeze.algorithms.algorithm import Algorithm
from spreeze.channels.control import RecordEvent
from spreeze.config import LearningConfig
from spreeze.learning.learning_rate import learning_rate_for
from spreeze.learning.progress_counters import ProgressCounters
from spreeze.learning.updates import Updates

MIN_BATCH_SIZE = 64  # if not even this fits, a smaller batch will not help


class Launches:
    """Keeps the batch size, and the learning rate that belongs to it."""

    def __init__(
        self,
        learning: LearningConfig,
        algorithm: Algorithm,
        updates: Updates,
        progress: ProgressCounters,
        counters: NDArray[Any],
        record_event: RecordEvent,
    ) -> None:
        self._learning, self._algorithm, self._updates = learning, algorithm, updates
        self._progress, self._counters, self._record_event = progress, counters, record_event
        self.batch_size = int(learning.batch_size)
        self._batch_limit = sys.maxsize

    def run(self, allowed: int) -> None:
        """Launch updates, at least one and at most as many as allowed, and count them."""
        launched = self._launch(allowed)  # perhaps with a smaller batch than before
        self._progress.add(launched, self.batch_size)

    def settle(self) -> None:
        """Wait for all updates that are under way."""
        self._progress.settle(self.batch_size)

    def follow(self, ordered: int, may_change: bool) -> bool:
        """Change to the ordered batch size, 0 for none, once that delays no update; return whether it is in use."""
        wanted = min(ordered or self.batch_size, self._batch_limit)
        if wanted != self.batch_size and may_change and self._updates.ready(wanted):
            self.settle()  # with the batch size that they were launched with
            self._use_batches_of(wanted)
        return wanted == self.batch_size

    def _launch(self, allowed: int) -> int:
        while True:
            try:
                return self._updates.launch(self.batch_size, allowed)
            except torch.OutOfMemoryError:
                if self.batch_size <= MIN_BATCH_SIZE:
                    raise
                self.settle()  # with the batch size that they were launched with
                torch.cuda.empty_cache()
                self._use_batches_of(self.batch_size // 2)
                self._counters["batch_limit"] = self._batch_limit = self.batch_size
                self._record_event("warning", f"out of GPU memory: from here on batches of {self.batch_size}")

    def _use_batches_of(self, rows: int) -> None:
        self.batch_size = rows
        self._algorithm.learning_rate = learning_rate_for(self._learning, rows)
