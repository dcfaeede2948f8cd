"""An environment whose observation says when it was made, to follow a row from its step into the learner's pool.

The first two numbers are whole seconds and their fraction since `began_at`, on the clock that all processes share:
two, because a float32 of seconds alone would be too coarse. The others are noise, so that a row has the usual size.
"""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

ENV_ID = "Ablation/Stamped-v0"


class Stamped(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Does nothing but say when."""

    def __init__(self, began_at: float, observation_size: int, action_size: int) -> None:
        self._began_at = began_at
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (observation_size,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (action_size,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed, options=options)
        return self._observe(), {}

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        return self._observe(), -float(np.square(action).sum()), False, False, {}

    def _observe(self) -> NDArray[np.float32]:
        observation = self.np_random.standard_normal(self.observation_space.shape, dtype=np.float32)
        seconds, fraction = divmod(time.monotonic() - self._began_at, 1.0)
        observation[:2] = seconds, fraction
        return observation


gymnasium.register(ENV_ID, Stamped, max_episode_steps=1000)
