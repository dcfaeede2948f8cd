"""What a run has to know of its environment: found out by a process that makes one, and sent to the supervisor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.spaces import Actions, ContinuousActions, DiscreteActions, Spaces
from spreeze.config.choice import Choice

# A thread costs about 0.1 ms per step; and a sampler makes 500 steps per second of those below anyway.
MIN_WAIT_S, MIN_WAIT_RATIO = 0.002, 2.0
MIN_AT_ONCE = 1.5  # of three environments in threads: if they took turns it would be 1


@dataclass(frozen=True)
class StepCost:
    """What steps and resets of one environment take, by the clock and on cores, its child processes included."""

    step_s: float
    step_cpu_s: float
    reset_s: float
    reset_cpu_s: float
    episode_steps: int
    """Steps from one reset to the next, at most."""
    at_once: float = 0.0
    """How many of three environments in threads were in a step at once, on average; 0 if that was not tried."""
    instance_bytes: int = 0
    """Memory of one environment and what it has started, where several were made."""
    threads_error: str = ""
    """What was raised when it was tried in threads."""

    @property
    def mean_s(self) -> float:
        """Seconds per step, with its share of a reset."""
        return self.step_s + self.reset_s / self.episode_steps

    @property
    def mean_cpu_s(self) -> float:
        """Seconds on a core per step, likewise."""
        return self.step_cpu_s + self.reset_cpu_s / self.episode_steps

    @property
    def waits(self) -> bool:
        """Whether it waits for most of the time, so that several can wait side by side."""
        return self.mean_s > MIN_WAIT_S and self.mean_s > MIN_WAIT_RATIO * self.mean_cpu_s

    @property
    def overlaps_in_threads(self) -> bool:
        """Whether environments of one process can wait side by side."""
        return self.at_once >= MIN_AT_ONCE


@dataclass(frozen=True)
class EnvironmentFacts:
    """Its spaces, how it is stepped and drawn, what that takes, and what a checkpoint records of it."""

    spaces: Spaces
    backend: Choice
    render_modes: tuple[str, ...]
    description: Mapping[str, Any]
    """JSON, of `environments/description.py`: a run is resumed with the environment that it was trained on."""
    cost: StepCost | None = None
    """None where it was not measured: for batched backends, and where a single call takes too long."""

    def as_json(self) -> dict[str, Any]:
        """Return what a message carries."""
        spaces = self.spaces
        return {
            "observation": spaces.observation,
            "action": _action_as_json(spaces.action),
            "backend": [self.backend.value, self.backend.reason],
            "render_modes": self.render_modes,
            "description": self.description,
            "cost": None if self.cost is None else asdict(self.cost),
        }

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> EnvironmentFacts:
        """Return what a message carries."""
        return cls(
            Spaces(message["observation"], _action_of(message["action"])),
            Choice("backend", *message["backend"]),
            tuple(message["render_modes"]),
            message["description"],
            None if message["cost"] is None else StepCost(**message["cost"]),
        )


def _action_as_json(action: Actions) -> dict[str, Any]:
    if isinstance(action, DiscreteActions):
        return asdict(action)
    return {"low": _plain(action.low), "high": _plain(action.high), "shape": action.shape}


def _action_of(message: Mapping[str, Any]) -> Actions:
    if "choices" in message:
        lists = {name: tuple(message[name]) for name in ("choices", "start", "shape")}
        return DiscreteActions(kind=message["kind"], dtype=message["dtype"], **lists)
    return ContinuousActions(_array(message["low"]), _array(message["high"]), tuple(message["shape"]))


def _plain(bounds: NDArray[Any]) -> dict[str, Any]:
    return {"dtype": bounds.dtype.str, "values": bounds.astype(np.float64).tolist()}


def _array(plain: Mapping[str, Any]) -> NDArray[Any]:
    return np.array(plain["values"], np.dtype(plain["dtype"]))
