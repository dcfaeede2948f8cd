"""Trains with samplers that explore with another kind of noise: what neither a flag nor an algorithm can say.

    python benchmarks/deviation/other_noise.py ornstein-uhlenbeck train Pendulum-v1 --algo ddpg --serial ...

Only for serial runs, whose samplers are in this process, and not to be resumed.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.sampling.exploration import NOISE_STEPS, ChoiceExploration, Exploration, make_exploration

THETA, SIGMA = 0.15, 0.2  # Lillicrap et al. 2015
EPSILON, LAST_EPSILON = 1.0, 0.1  # Mnih et al. 2015
FALLS_OVER = 1000  # environment steps, of the 4,000 that follow the random ones


class OrnsteinUhlenbeck(Exploration):
    """Noise that drifts: x moves back to 0 by theta, and on by sigma. It goes on over the end of an episode."""

    _x: NDArray[Any] | float = 0.0

    def _draw_block(self) -> NDArray[Any]:
        block = self._rng.standard_normal((NOISE_STEPS, *self._shape), dtype=np.float32)
        for i, drawn in enumerate(block):
            self._x = self._x - THETA * self._x + SIGMA * drawn
            block[i] = self._x
        return block


class FallingChoices(ChoiceExploration):
    """Random choices whose probability falls from 1 to 0.1 in the course of the run, the same everywhere."""

    _drawn = 0

    def _draw_block(self) -> NDArray[Any]:
        steps = (self._drawn + np.arange(NOISE_STEPS)) * self._shape[0]
        self._drawn += NOISE_STEPS
        epsilon = EPSILON + (LAST_EPSILON - EPSILON) * np.minimum(1.0, steps / FALLS_OVER)
        shape = (NOISE_STEPS, *self._shape)
        drawn = self._rng.integers(0, self._choices, shape, np.int32)
        drawn[self._rng.random(shape, np.float32) >= epsilon[:, None, None]] = -1
        return drawn


class JointChoices(ChoiceExploration):
    """All components of an action are random, or none."""

    def _draw_block(self) -> NDArray[Any]:
        shape = (NOISE_STEPS, *self._shape)
        drawn = self._rng.integers(0, self._choices, shape, np.int32)
        chance = self._rng.random((*shape[:-1], 1), np.float32)
        drawn[np.broadcast_to(chance >= self._scale, shape)] = -1
        return drawn


KINDS: dict[str, type[Exploration]] = {
    "ornstein-uhlenbeck": OrnsteinUhlenbeck,
    "falling": FallingChoices,
    "joint": JointChoices,
}


def explore_with(kind: type[Exploration]) -> None:
    """Let the samplers of this process explore with this kind of noise."""
    from spreeze.sampling import process

    def make_other(*words: Any) -> Exploration:
        made = make_exploration(*words)
        made.__class__ = kind  # it has drawn nothing yet, and what it holds is the same
        return made

    vars(process)["make_exploration"] = make_other


if __name__ == "__main__":
    from spreeze.__main__ import main

    explore_with(KINDS[sys.argv.pop(1)])
    main()
