"""Describes the observations and actions that cross the channels.

The encoding of a space is plain JSON, so that a policy file carries it and needs no Gymnasium to be used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from spreeze.config import ActionKind, ObservationKind


@dataclass(frozen=True)
class ContinuousActions:
    """Vectors between bounds; policies give them in [-1, 1]."""

    low: NDArray[Any]
    """Flat, in the environment's own type."""
    high: NDArray[Any]
    shape: tuple[int, ...]

    @property
    def kind(self) -> ActionKind:
        """What an algorithm gives."""
        return "continuous"

    @property
    def size(self) -> int:
        """Length of the flattened action."""
        return self.low.size


@dataclass(frozen=True)
class DiscreteActions:
    """One choice, or several at once; policies give the index of each."""

    kind: ActionKind
    choices: tuple[int, ...]
    """How many values each component has."""
    start: tuple[int, ...]
    """The first value of each."""
    shape: tuple[int, ...]
    dtype: str
    """Type of the environment's actions."""

    @property
    def size(self) -> int:
        """Number of components."""
        return len(self.choices)


Actions = ContinuousActions | DiscreteActions
ActionType = Literal["float32", "int32"]


@dataclass(frozen=True)
class Spaces:
    """An environment's spaces, as far as the rest of Spreeze needs them."""

    observation: Encoding
    action: Actions

    @property
    def observation_kind(self) -> ObservationKind:
        """What an algorithm sees: one vector of all parts that are none, images, or both."""
        if not images_of(self.observation):
            return "vector"
        return "mixed" if self.observation_size else "image"

    @property
    def action_kind(self) -> ActionKind:
        """What an algorithm gives."""
        return self.action.kind

    @property
    def observation_size(self) -> int:
        """Length of the vector of an observation; 0 where it consists of images."""
        return vector_size(self.observation)

    @property
    def action_size(self) -> int:
        """Number of the action's components."""
        return self.action.size

    @property
    def choices(self) -> tuple[int, ...]:
        """How many values each component of a discrete action has; empty for continuous ones."""
        return self.action.choices if isinstance(self.action, DiscreteActions) else ()

    @property
    def action_type(self) -> ActionType:
        """Type of the actions as policies give them: numbers in [-1, 1], or the index of each component's value."""
        return "float32" if self.action_kind == "continuous" else "int32"

    def require_same(self, made: Spaces) -> None:
        """Raise, with both sizes named, if an environment is not the one that memory was sized for."""
        if (made.observation_size, made.action_size) != (self.observation_size, self.action_size):
            raise ValueError(
                f"the environment was made with {made.observation_size} observations and {made.action_size} "
                f"actions, but with {self.observation_size} and {self.action_size} when the run was planned"
            )
        if (made.choices, images_of(made.observation)) != (self.choices, images_of(self.observation)):
            raise ValueError("the environment was made with other actions or images than when the run was planned")


Encoding = Mapping[str, Any]


def vector_size(encoding: Encoding) -> int:
    """Return the length of the vector that an observation becomes. Images are no part of it."""
    kind = encoding["kind"]
    if kind == "image":
        return 0
    if kind in ("box", "multi_binary"):
        return int(np.prod(encoding["shape"], dtype=np.int64))
    if kind == "discrete":
        return int(encoding["n"])
    if kind == "multi_discrete":
        return int(sum(encoding["nvec"]))
    return sum(vector_size(part) for _, part in parts_of(encoding))


def images_of(encoding: Encoding, path: str = "") -> dict[str, tuple[int, ...]]:
    """Return the shapes of the images in an observation, by their keys: "camera.left"; "image" if it is one."""
    if encoding["kind"] == "image":
        return {path or "image": tuple(encoding["shape"])}
    if encoding["kind"] not in ("dict", "tuple"):
        return {}
    found: dict[str, tuple[int, ...]] = {}
    for key, part in parts_of(encoding):
        found.update(images_of(part, f"{path}.{key}" if path else str(key)))
    return found


def parts_of(encoding: Encoding) -> list[tuple[Any, Encoding]]:
    """Return the keys and encodings of the parts of a Dict or Tuple space."""
    parts = encoding["parts"]
    return list(parts.items()) if encoding["kind"] == "dict" else list(enumerate(parts))
