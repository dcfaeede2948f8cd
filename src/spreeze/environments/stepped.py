"""What every way to step several environments has in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.spaces import Spaces
from spreeze.environments.actions import ActionRange


class Environments(Protocol):
    """Several environments of one process, stepped together; each starts a new episode when one ends."""

    spaces: Spaces
    observations: NDArray[np.float32]
    """What to act on next."""
    next_observations: NDArray[np.float32]
    """What the last step led to: of an episode that ended, its true last observation."""
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]

    def __len__(self) -> int: ...

    def step(self, actions: NDArray[np.float32]) -> list[tuple[int, float, int]]:
        """Take one step in each environment; actions are in [-1, 1], (envs, action_size).

        Returns (environment, return, length) of each episode that ended.
        """
        ...

    def so_far(self, i: int) -> tuple[float, int]:
        """Return the return and the length of an episode that has not ended."""
        ...

    def rest(self, i: int) -> None:
        """Say that nothing more is wanted of an environment until the next `reset`: it need not be stepped."""
        ...

    def reset(self, seeds: Sequence[int]) -> None:
        """Start a new episode in every environment."""
        ...

    def close(self) -> None:
        """Close all environments, with what they may have started."""
        ...


class Stepped:
    """What a step of several environments leaves, and how far their episodes are: the arrays of an `Environments`."""

    def __init__(self, spaces: Spaces, count: int) -> None:
        self.spaces = spaces
        self.observations = np.zeros((count, spaces.observation_size), np.float32)
        self.next_observations = np.zeros((count, spaces.observation_size), np.float32)
        self.rewards = np.zeros(count, np.float32)
        self.terminated = np.zeros(count, np.bool_)
        self._range = ActionRange(spaces.action_low, spaces.action_high, spaces.action_shape)
        self._returns = np.zeros(count)
        self._lengths = np.zeros(count, np.int64)

    def __len__(self) -> int:
        return len(self.rewards)

    def so_far(self, i: int) -> tuple[float, int]:
        """Return the return and the length of an episode that has not ended."""
        return float(self._returns[i]), int(self._lengths[i])
