"""The randomness of a sampler's actions: uniform actions before there is a policy, scaled noise afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from spreeze.config import SamplingConfig

NOISE_STEPS = 64
GOLDEN_RATIO = (5**0.5 - 1) / 2


class Exploration:
    """Draws for all environments of one sampler."""

    def __init__(self, scale: NDArray[np.float32], action_size: int, rng: np.random.Generator) -> None:
        """scale: of each environment's noise, (envs, 1)."""
        self._scale, self._shape, self._rng = scale, (len(scale), action_size), rng
        self.noise = self._scaled_noise()
        """Normal noise for one step after the other, (envs, action_size)."""

    def uniform_actions(self) -> NDArray[np.float32]:
        """Return actions for the random warm-up."""
        return self._rng.uniform(-1.0, 1.0, self._shape).astype(np.float32)

    def _scaled_noise(self) -> Iterator[NDArray[np.float32]]:
        while True:
            # For many steps at once: each call costs more than its numbers do.
            steps = self._rng.standard_normal((NOISE_STEPS, *self._shape), dtype=np.float32)
            steps *= self._scale
            yield from steps


def noise_scale(sampling: SamplingConfig, index: int, count: int) -> NDArray[np.float32]:
    """Return how much noise each environment explores with, spread evenly over all samplers (Horgan et al. 2018)."""
    low, high = float(sampling.exploration), float(sampling.exploration_high)
    # Multiples of the golden ratio leave no gap, however many there will be.
    places = (np.arange(index * count, (index + 1) * count) * GOLDEN_RATIO) % 1.0
    return (low + (high - low) * places).astype(np.float32)[:, None]
