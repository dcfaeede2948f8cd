"""Observations with mean 0 and variance 1: running statistics of all observations, used by the learner alone.

Samplers, evaluator and the exported policy need not know: the policy that is published has the scaling in its first
layer. In: rows as they come. Out: tensors that `Replay.draw` scales with.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spreeze.channels.transitions import Rows

MIN_VARIANCE = 1e-4  # a component that hardly ever changes must not become huge when it does
GROWTH = 1.1  # statistics are taken over when there are this many times as many rows: often at first, later rarely


class Normaliser:
    """Mean and scale of each component of the observation."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.mean = torch.zeros(size, device=device)
        self.scale = torch.ones(size, device=device)
        self._count, self._used = 0, 0
        self._mean: NDArray[np.float64] = np.zeros(size)
        self._squares: NDArray[np.float64] = np.zeros(size)  # of the distances from the mean, summed
        self._in_use: NDArray[np.float64] = np.stack([np.zeros(size), np.ones(size)])

    def add(self, observations: Rows) -> None:
        """Take more observations into account (Chan et al. 1979)."""
        count = len(observations)
        if not count:
            return
        mean = observations.mean(0, dtype=np.float64)
        distance = mean - self._mean
        total = self._count + count
        self._squares += np.square(observations - mean).sum(0) + distance**2 * (self._count * count / total)
        self._mean += distance * (count / total)
        self._count = total

    def take_over(self) -> None:
        """Scale updates launched from now on with the current statistics, if these have changed enough."""
        if self._count < max(2, GROWTH * self._used):
            return
        self._used = self._count
        variance = np.maximum(self._squares / self._count, MIN_VARIANCE)
        self._use(np.stack([self._mean, variance**-0.5]))

    def _use(self, mean_and_scale: NDArray[np.float64]) -> None:
        self._in_use = mean_and_scale
        self.mean.copy_(torch.from_numpy(mean_and_scale[0]))
        self.scale.copy_(torch.from_numpy(mean_and_scale[1]))

    def statistics(self) -> dict[str, NDArray[np.float64]]:
        """Return the statistics by name, for a checkpoint."""
        counts = np.array([self._count, self._used], np.float64)
        return {
            "seen.mean": self._mean.copy(),
            "seen.squares": self._squares.copy(),
            "seen.counts": counts,
            "seen.in_use": self._in_use,
        }

    def restore(self, statistics: Mapping[str, NDArray[np.float64]]) -> None:
        """Continue from the statistics of a checkpoint."""
        for name, array in self.statistics().items():
            if statistics[name].shape != array.shape:
                raise ValueError("statistics of another environment")
        self._mean, self._squares = statistics["seen.mean"].copy(), statistics["seen.squares"].copy()
        self._count, self._used = (int(count) for count in statistics["seen.counts"])
        self._use(statistics["seen.in_use"].copy())

    def __call__(self, observations: Tensor) -> Tensor:
        """Return observations as the networks learn from them."""
        return (observations - self.mean) * self.scale

    def inside(self, policy: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return a policy that takes observations as they are: W (s - m) c = (c W) s - (m c) W."""
        weight, bias = policy["actor.0.weight"], policy["actor.0.bias"]
        scaled = weight * self.scale[:, None]
        return {**policy, "actor.0.weight": scaled, "actor.0.bias": bias - self.mean @ scaled}
