"""Turns actions as policies give them into those that the environment takes.

In: numbers in [-1, 1], or the index of the value of each component where actions are discrete. Out: actions in the
environment's own range, type and shape.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.spaces import Actions, ContinuousActions, DiscreteActions


class EnvActions(Protocol):
    """What an environment takes."""

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Return actions as the environment takes them, (rows, *shape), of a policy's, (rows, size)."""
        ...

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[Any]:
        """Return actions drawn uniformly, as a policy gives them, (count, size)."""
        ...


def env_actions(space: Actions) -> EnvActions:
    """Return what an environment with these actions takes."""
    return ActionChoices(space) if isinstance(space, DiscreteActions) else ActionRange(space)


class ActionRange:
    """The bounds, type and shape of an environment's actions."""

    def __init__(self, space: ContinuousActions) -> None:
        low, high, shape = space.low, space.high, space.shape
        if low.shape != high.shape or low.size != int(np.prod(shape, dtype=np.int64)):
            raise ValueError(f"{low.size} lower and {high.size} upper bounds do not fit actions of shape {shape}")
        self._low, self._high, self._shape = low, high, shape
        # In float64 and by halves: the distance between the widest float32 bounds overflows float32.
        self._scale = high.astype(np.float64) / 2 - low.astype(np.float64) / 2
        self._center = high.astype(np.float64) / 2 + low.astype(np.float64) / 2
        self._is_unit = bool((low == -1).all() and (high == 1).all())

    def to_env(self, actions: NDArray[np.float32]) -> NDArray[Any]:
        """Return actions in the environment's range and type, (rows, *shape), for (rows, size) in [-1, 1]."""
        scaled: NDArray[Any] = actions
        if not self._is_unit:
            scaled = self._scale * actions
            scaled += self._center
            # Rounding may exceed a bound by one unit in the last place, which strict environments refuse.
            # Two ufuncs instead of np.clip, which takes as long as the rest of a step's bookkeeping.
            np.maximum(scaled, self._low, out=scaled)
            np.minimum(scaled, self._high, out=scaled)
        # Always a copy: the environment may keep or change the array.
        return scaled.astype(self._low.dtype).reshape(len(actions), *self._shape)

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Return actions in [-1, 1], (count, size)."""
        return rng.uniform(-1.0, 1.0, (count, self._low.size)).astype(np.float32)


class ActionChoices:
    """The values that an environment's actions are chosen from."""

    def __init__(self, space: DiscreteActions) -> None:
        self._choices, self._start = space.choices, np.array(space.start)
        self._shape, self._dtype = space.shape, np.dtype(space.dtype)

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Return values, (rows, *shape), for the index of each, (rows, size)."""
        values: NDArray[Any] = (actions + self._start).astype(self._dtype)
        return values.reshape(len(actions), *self._shape)

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.int32]:
        """Return the indices of values, (count, size)."""
        return rng.integers(0, self._choices, (count, len(self._choices)), np.int32)
