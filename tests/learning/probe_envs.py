"""Environments whose values and best actions can be computed by hand, each for one thing that a learner must do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Step = tuple[Any, float, bool, bool, dict[str, Any]]
PUSH = spaces.Box(-1, 1, (1,), np.float32)


@dataclass(frozen=True)
class Visit:
    """What happens in a state of a table."""

    reward: float | Mapping[Any, float]
    """Whatever the action, or of each one."""
    leads_to: int
    """The state that is observed after it, also where the episode ends."""
    ends: Literal["no", "terminated", "truncated"] = "no"


class Table(gymnasium.Env[Any, Any]):
    """A few states, observed as one-hot vectors; each is as likely as the others to be the first."""

    def __init__(self, *visits: Visit, action_space: spaces.Space[Any] = PUSH) -> None:
        self.action_space = action_space
        self.observation_space = spaces.Box(0, 1, (len(visits),), np.float32)
        self._visits, self._state = visits, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._state = int(self.np_random.integers(len(self._visits)))
        return self._observe(), {}

    def step(self, action: Any) -> Step:
        visit = self._visits[self._state]
        self._state = visit.leads_to
        reward = visit.reward[action] if isinstance(visit.reward, Mapping) else visit.reward
        return self._observe(), reward, visit.ends == "terminated", visit.ends == "truncated", {}

    def _observe(self) -> NDArray[np.float32]:
        return np.eye(len(self._visits), dtype=np.float32)[self._state]


class Target(gymnasium.Env[Any, Any]):
    """Episodes of one step: the reward is 1 less the squared distance, in half widths, from an action within bounds.

    The best action is `best`, plus `slope` times a number that is drawn from [-1, 1] and observed.
    """

    def __init__(
        self, low: Any = -1.0, high: Any = 1.0, best: Any = 0.0, slope: float = 0.0, units: float = 1.0
    ) -> None:
        """units: what the observation is measured in; it is far from 0 where they are not 1."""
        low, high = (np.atleast_1d(np.asarray(bound, np.float32)) for bound in (low, high))
        self.action_space = spaces.Box(low, high)
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self._half_width, self._best, self._slope = (high - low) / 2, np.asarray(best, np.float32), slope
        self._units, self._drawn = units, 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._drawn = float(self.np_random.uniform(-1, 1)) if self._slope else 0.0
        return in_units(self._drawn, self._units), {}

    def step(self, action: Any) -> Step:
        assert self.action_space.contains(action), action
        distance = (action - self._best - self._slope * self._drawn) / self._half_width
        return in_units(self._drawn, self._units), 1 - float(np.square(distance).sum()), True, False, {}


def in_units(number: float, units: float) -> NDArray[np.float32]:
    """Return what `Target` and `Seen` observe."""
    return np.array([number * units + 5 * (units - 1)], np.float32)


class Seen(gymnasium.Env[Any, Any]):
    """Episodes of one step, whose reward is the number that is observed, drawn from [-1, 1]."""

    action_space = spaces.Box(-1, 1, (1,), np.float32)
    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self, units: float = 1.0) -> None:
        self._units, self._drawn = units, 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._drawn = float(self.np_random.uniform(-1, 1))
        return in_units(self._drawn, self._units), {}

    def step(self, _action: Any) -> Step:
        return in_units(self._drawn, self._units), self._drawn, True, False, {}


class Later(gymnasium.Env[Any, Any]):
    """Episodes of two steps: the first action is observed, and paid for at the second, whatever is done there."""

    START: ClassVar[tuple[float, float]] = (1.0, 0.0)
    BEST = 0.5
    action_space = spaces.Box(-1, 1, (1,), np.float32)
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def __init__(self) -> None:
        self._chosen: float | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._chosen = None
        return np.array(self.START, np.float32), {}

    def step(self, action: Any) -> Step:
        if self._chosen is None:
            self._chosen = float(action[0])
            return np.array([0, self._chosen], np.float32), 0.0, False, False, {}
        return np.array([0, self._chosen], np.float32), 1 - 2 * (self._chosen - self.BEST) ** 2, True, False, {}


class Then(gymnasium.Env[Any, Any]):
    """Episodes of two steps: the first action changes nothing, and the second one is paid for."""

    BEST = 0.8
    action_space = spaces.Box(-1, 1, (1,), np.float32)
    observation_space = spaces.Box(0, 1, (1,), np.float32)

    def __init__(self) -> None:
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Step:
        self._steps += 1
        is_last = self._steps == 2
        reward = 1 - (float(action[0]) - self.BEST) ** 2 if is_last else 0.0
        return np.ones(1, np.float32), reward, is_last, False, {}
