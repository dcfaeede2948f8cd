"""Scales actions of a policy, in [-1, 1], to the environment's own range."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class ActionRange:
    """The bounds, type and shape of an environment's actions."""

    def __init__(self, low: NDArray[Any], high: NDArray[Any], shape: tuple[int, ...]) -> None:
        if low.shape != high.shape or low.size != int(np.prod(shape, dtype=np.int64)):
            raise ValueError(f"{low.size} lower and {high.size} upper bounds do not fit actions of shape {shape}")
        self._low, self._high, self._shape = low, high, shape
        # In float64 and by halves: the distance between the widest float32 bounds overflows float32.
        self._scale = high.astype(np.float64) / 2 - low.astype(np.float64) / 2
        self._center = high.astype(np.float64) / 2 + low.astype(np.float64) / 2
        self._is_unit = bool((low == -1).all() and (high == 1).all())

    def from_unit(self, actions: NDArray[np.float32]) -> NDArray[Any]:
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
