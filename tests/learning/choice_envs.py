"""Environments with discrete actions whose values and best actions can be computed by hand."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class Choice(gymnasium.Env[Any, Any]):
    """Episodes of one step: the reward is the share of components that are what is wanted.

    What is wanted of a component is one value where the observation is positive, and another where it is negative.
    """

    observation_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, action_space: spaces.Space[Any], positive: Any, negative: Any) -> None:
        self.action_space, self._positive, self._negative = action_space, positive, negative
        self._seen = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._seen = float(self.np_random.choice([-1.0, 1.0]))
        return np.array([self._seen], np.float32), {}

    def step(self, action: Any) -> Step:
        assert self.action_space.contains(action), action
        wanted = self._positive if self._seen > 0 else self._negative
        return np.array([self._seen], np.float32), float(np.mean(action == wanted)), True, False, {}


class Corridor(gymnasium.Env[Any, Any]):
    """Five cells, the first of which pays 0.1 and the last 1: both end the episode. It begins next to the first.

    The first choice goes back and the second forward, so that from cell c the last is 4 - c steps away.
    """

    CELLS = 5
    observation_space = spaces.Box(0, 1, (CELLS,), np.float32)
    action_space = spaces.Discrete(2, start=7)

    def __init__(self) -> None:
        self._cell = 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._cell = 1
        return self._observe(), {}

    def step(self, action: Any) -> Step:
        assert self.action_space.contains(action), action
        self._cell += 1 if action == 8 else -1
        reward = {0: 0.1, self.CELLS - 1: 1.0}.get(self._cell, 0.0)
        return self._observe(), reward, reward > 0, False, {}

    def _observe(self) -> Any:
        return np.eye(self.CELLS, dtype=np.float32)[self._cell]
