"""What a run has to know of its environment: found out by a process that makes one, and sent to the supervisor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.spaces import Spaces
from spreeze.config.choice import Choice


@dataclass(frozen=True)
class EnvironmentFacts:
    """Its spaces, and how it is stepped and drawn."""

    spaces: Spaces
    backend: Choice
    render_modes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return what a message carries."""
        spaces = self.spaces
        return {
            "observation": spaces.observation,
            "action_low": _plain(spaces.action_low),
            "action_high": _plain(spaces.action_high),
            "action_shape": spaces.action_shape,
            "backend": [self.backend.value, self.backend.reason],
            "render_modes": self.render_modes,
        }

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> EnvironmentFacts:
        """Return what a message carries."""
        return cls(
            Spaces(
                message["observation"],
                _array(message["action_low"]),
                _array(message["action_high"]),
                tuple(message["action_shape"]),
            ),
            Choice("backend", *message["backend"]),
            tuple(message["render_modes"]),
        )


def _plain(bounds: NDArray[Any]) -> dict[str, Any]:
    return {"dtype": bounds.dtype.str, "values": bounds.astype(np.float64).tolist()}


def _array(plain: Mapping[str, Any]) -> NDArray[Any]:
    return np.array(plain["values"], np.dtype(plain["dtype"]))
