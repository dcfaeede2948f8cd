from __future__ import annotations

import numpy as np
import torch

from spreeze.channels.metrics import LEARNER
from spreeze.learning.progress_counters import ProgressCounters

CPU = torch.device("cpu")


def test_finished_updates_are_counted_with_the_batch_size_that_they_had() -> None:
    counters = np.zeros(1, LEARNER)
    progress = ProgressCounters(counters, CPU)
    assert not progress.has_launched
    progress.settle(64)
    assert counters["first_update_at"][0] == 0
    progress.add(2, 64)
    first = float(counters["first_update_at"][0])
    progress.add(1, 32)
    assert progress.launched == 3
    assert progress.has_launched
    assert [int(counters[name][0]) for name in ("updates", "update_frames", "batch_size")] == [3, 160, 32]
    assert counters["first_update_at"][0] == first > 0


def test_updates_before_the_checkpoint_are_not_launches_of_this_process() -> None:
    counters = np.zeros(1, LEARNER)
    counters["updates"] = 100
    progress = ProgressCounters(counters, CPU)
    progress.start_at(100)
    assert (progress.launched, progress.has_launched) == (100, False)
    progress.add(1, 8)
    assert (progress.launched, progress.has_launched) == (101, True)
    assert int(counters["updates"][0]) == 101


def test_a_snapshot_includes_updates_that_the_gpu_has_not_finished() -> None:
    counters = np.zeros(1, LEARNER)
    counters["updates"], counters["update_frames"], counters["rows_stored"] = 10, 640, 7
    progress = ProgressCounters(counters, CPU)
    progress.start_at(16)  # as if six were under way
    snapshot = progress.snapshot(64)
    assert (snapshot["updates"], snapshot["update_frames"], snapshot["rows_stored"]) == (16, 640 + 6 * 64, 7)
