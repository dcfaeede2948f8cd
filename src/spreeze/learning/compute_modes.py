"""Chooses how updates are computed on a CPU: number of threads and kind of operations.

Every compute mode is tried on the first updates of a run, which are real ones, while samplers and evaluator run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray

from spreeze.algorithms.algorithm import Algorithm
from spreeze.algorithms.kernels.cpu import CPU
from spreeze.algorithms.kernels.operations import PLAIN, Operations
from spreeze.channels.control import RecordEvent
from spreeze.config import LearningConfig
from spreeze.host.hardware import usable_cores
from spreeze.host.threads import learner_thread_candidates
from spreeze.learning.trial import Trial

TRIAL_ROUNDS, TRIAL_UPDATES = 3, 8


class ComputeMode(NamedTuple):
    """One way to compute an update on a CPU."""

    threads: int
    operations: Operations

    def __str__(self) -> str:
        return f"{self.operations.name} on {self.threads} thread{'s' if self.threads > 1 else ''}"


def compute_modes(learning: LearningConfig, device: torch.device) -> list[ComputeMode]:
    """Return the modes to try: a single one on a GPU, where the CPU only launches."""
    if learning.learner_threads != "auto":
        counts = [learning.learner_threads]
    elif device.type == "cpu":
        counts = learner_thread_candidates(max(1, usable_cores() // (2 if learning.is_split else 1)))
    else:
        counts = [1]
    kinds = {"auto": [PLAIN, CPU], "bfloat16": [CPU]}.get(learning.update_engine, [PLAIN])
    if (
        device.type != "cpu" or learning.layer_norm
    ):  # networks with layer norm are computed in float32, layer by layer
        kinds = [PLAIN]
    return [ComputeMode(count, operations) for count in counts for operations in kinds]


class ComputeModes:
    """Applies the mode that is being tried, then the fastest, then the number of threads that is ordered."""

    def __init__(
        self, learning: LearningConfig, algorithm: Algorithm, counters: NDArray[Any], record_event: RecordEvent
    ) -> None:
        self._algorithm, self._counters, self._record_event = algorithm, counters, record_event
        self._trial = Trial(compute_modes(learning, algorithm.device), TRIAL_ROUNDS, TRIAL_UPDATES)
        self._use(self._trial.current)

    @property
    def is_chosen(self) -> bool:
        """Whether all modes were tried and the fastest is in use."""
        return self._trial.is_over

    def record(self, seconds: float) -> None:
        """Take the time of the launch that was just made; change to the next mode when it is time."""
        # On the actor's side, updates that are not the actor's turn take no time worth comparing.
        if not self._algorithm.updates_critic and self._algorithm.phase:
            return
        before = self._trial.current
        self._trial.record(seconds)
        if self._trial.current != before:
            self._use(self._trial.current)
        if self._trial.is_over:
            self._record_choice()

    def record_untimed(self) -> None:
        """Count an update without its time, and stay with the first mode: in lock step times include waiting."""
        self._trial.record(0.0)

    def use_threads(self, ordered: int) -> None:
        """Compute with the ordered number of threads; 0 leaves the number as it is."""
        if ordered and ordered != self._counters["learner_threads"][0]:
            if self._algorithm.device.type == "cpu":
                torch.set_num_threads(ordered)
            self._counters["learner_threads"] = ordered  # on a GPU too: the other side may be on a CPU

    def _use(self, mode: ComputeMode) -> None:
        torch.set_num_threads(mode.threads)
        self._counters["learner_threads"] = mode.threads
        self._algorithm.operations = mode.operations

    def _record_choice(self) -> None:
        best, modes = self._trial.best, self._trial.candidates
        reason = f"median time of an update in each compute mode: {self._trial.summary()}"
        for setting, value, count in (
            ("learner_threads", best.threads, len({mode.threads for mode in modes})),
            ("update_engine", best.operations.name, len({mode.operations for mode in modes})),
        ):
            if count > 1:
                self._record_event("choice", reason, setting=setting, value=value)
