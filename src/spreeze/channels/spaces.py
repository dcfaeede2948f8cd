"""Describes the observations and actions that cross the channels.

The encoding of a space is plain JSON, so that a policy file carries it and needs no Gymnasium to be used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.config import ActionKind, ObservationKind


@dataclass(frozen=True)
class Spaces:
    """An environment's spaces, as far as the rest of Spreeze needs them."""

    observation: Encoding
    action_low: NDArray[Any]
    """Flat, in the environment's own type."""
    action_high: NDArray[Any]
    action_shape: tuple[int, ...]

    @property
    def observation_kind(self) -> ObservationKind:
        """What an algorithm sees: the parts of an observation as one vector."""
        return "vector"

    @property
    def action_kind(self) -> ActionKind:
        """What an algorithm gives."""
        return "continuous"

    @property
    def observation_size(self) -> int:
        """Length of the flattened observation."""
        return vector_size(self.observation)

    @property
    def action_size(self) -> int:
        """Length of the flattened action."""
        return self.action_low.size

    def require_same(self, made: Spaces) -> None:
        """Raise, with both sizes named, if an environment is not the one that memory was sized for."""
        if (made.observation_size, made.action_size) != (self.observation_size, self.action_size):
            raise ValueError(
                f"the environment was made with {made.observation_size} observations and {made.action_size} "
                f"actions, but with {self.observation_size} and {self.action_size} when the run was planned"
            )


Encoding = Mapping[str, Any]


def vector_size(encoding: Encoding) -> int:
    """Return the length of the vector that an observation becomes."""
    kind = encoding["kind"]
    if kind in ("box", "multi_binary"):
        return int(np.prod(encoding["shape"], dtype=np.int64))
    if kind == "discrete":
        return int(encoding["n"])
    if kind == "multi_discrete":
        return int(sum(encoding["nvec"]))
    return sum(vector_size(part) for _, part in parts_of(encoding))


def parts_of(encoding: Encoding) -> list[tuple[Any, Encoding]]:
    """Return the keys and encodings of the parts of a Dict or Tuple space."""
    parts = encoding["parts"]
    return list(parts.items()) if encoding["kind"] == "dict" else list(enumerate(parts))
