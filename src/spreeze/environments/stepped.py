"""The interface of environments that are stepped together, and the state that all backends share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from spreeze.channels.spaces import Spaces
from spreeze.environments.actions import env_actions

Which = slice | NDArray[np.intp]
"""Some of the environments; the slice stands for all, and costs no copy."""
ALL = slice(None)

NO_LIMIT = np.iinfo(np.int64).max
"""Of the steps of an episode."""


class Watcher(Protocol):
    """Is told what happens to environments, before others can."""

    def made(self, env: gymnasium.Env[Any, Any]) -> None:
        """An environment was made."""
        ...

    def before_reset(self, env: gymnasium.Env[Any, Any]) -> None:
        """An environment is about to be reset; this may take as long as it likes."""
        ...


class Environments(Protocol):
    """Several environments of one process, stepped together; each starts a new episode when one ends."""

    spaces: Spaces
    observations: NDArray[np.float32]
    """What to act on next, (envs, observation_size)."""
    next_observations: NDArray[np.float32]
    """What the last step led to: the true last observation if the episode ended."""
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    ended: NDArray[np.bool_]
    """Whose episodes the last step has ended, terminated or truncated."""
    idle: Which
    """Those to which the next step will give actions."""
    stepped: Which
    """Those that the last step has stepped: the results of others are older."""

    def __len__(self) -> int: ...

    def step(self, actions: NDArray[Any]) -> list[tuple[int, float, int]]:
        """Take one step in each environment that is idle; actions as policies give them, (envs, action_size).

        Returns (environment, return, length) of each episode that ended.
        """
        ...

    def so_far(self, i: int) -> tuple[float, int]:
        """Return the return and the length of an episode that has not ended."""
        ...

    def stagger(self) -> None:
        """Truncate first episodes at different steps; `step` does not return those that are shortened."""
        ...

    def rest(self, i: int) -> None:
        """Allow an environment to be left out of steps until the next `reset`."""
        ...

    def reset(self, seeds: Sequence[int]) -> None:
        """Start a new episode in every environment."""
        ...

    def close(self) -> None:
        """Close all environments, and the processes or threads they may have started."""
        ...


class Stepped:
    """The arrays of `Environments`: results of the last step, and return and length of each episode so far."""

    idle: Which = ALL
    stepped: Which = ALL

    def __init__(self, spaces: Spaces, count: int) -> None:
        self.spaces = spaces
        self.observations = np.zeros((count, spaces.observation_size), np.float32)
        self.next_observations = np.zeros((count, spaces.observation_size), np.float32)
        self.rewards = np.zeros(count, np.float32)
        self.terminated = np.zeros(count, np.bool_)
        self.ended = np.zeros(count, np.bool_)
        self._range = env_actions(spaces.action)
        self._returns = np.zeros(count)
        self._lengths = np.zeros(count, np.int64)
        self._limits = np.full(count, NO_LIMIT, np.int64)
        self._full_limits: dict[int, int] = {}
        """Of environments whose first episode is shortened."""

    def __len__(self) -> int:
        return len(self.rewards)

    def so_far(self, i: int) -> tuple[float, int]:
        """Return the return and the length of an episode that has not ended."""
        return float(self._returns[i]), int(self._lengths[i])

    def stagger(self) -> None:
        """Truncate first episodes at different steps; `step` does not return those that are shortened.

        For a moment at which no environment has made a step. Episodes without a limit do not end together anyway.
        """
        count = len(self)
        for i, limit in enumerate(self._limits.tolist()):
            shorter = -(-limit * (i + 1) // count)
            if limit != NO_LIMIT and shorter < limit:
                self._full_limits[i], self._limits[i] = limit, shorter

    def _end_episode(self, i: int) -> list[tuple[int, float, int]]:
        """Return the episode that ends, for the list that `step` returns; empty if it was to be shortened."""
        full_limit = self._full_limits.pop(i, None)
        if full_limit is None:
            return [(i, float(self._returns[i]), int(self._lengths[i]))]
        self._limits[i] = full_limit
        return []
