"""Environments whose episodes can be played again: every episode has a seed of its own, and its actions are kept.

In: what `EnvBatch` takes, and the numbers that all seeds derive from. Out: the same rows as there, and a state from
which another process continues. That is exact for environments that depend only on the seed and the actions of the
episode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.config.env_spec import EnvSpec
from spreeze.environments.batch import EnvBatch


class RepeatableBatch(EnvBatch):
    """Steps environments one by one; remembers how each got to where it is."""

    def __init__(
        self, spec: EnvSpec, count: int, stream: Sequence[int], beat: Callable[[], None] = lambda: None
    ) -> None:
        """stream: with an environment's index and the number of its episode, what an episode's seed derives from."""
        self._stream = tuple(stream)
        self._episodes = np.full(count, -1, np.int64)
        self._actions: list[list[NDArray[Any]]] = [[] for _ in range(count)]
        super().__init__(spec, count, [0] * count, beat)

    def step(self, actions: NDArray[Any]) -> list[tuple[int, float, int]]:
        """Take one step in each environment, as `EnvBatch` does."""
        for taken, action in zip(self._actions, actions, strict=True):
            taken.append(action.copy())
        return super().step(actions)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return how each environment got to where it is, and what is observed there."""
        none = np.empty((0, self.spaces.action_size), self.spaces.action_type)
        return {
            "episodes": self._episodes.copy(),
            "steps": np.array([len(taken) for taken in self._actions]),
            "actions": np.concatenate([none, *(taken for taken in self._actions if taken)]),
            "observations": self.observations.copy(),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> bool:
        """Play to where the environments of a state are; return whether they observe the same there."""
        at = 0
        for i, (episode, steps) in enumerate(zip(state["episodes"].tolist(), state["steps"].tolist(), strict=True)):
            self._episodes[i] = episode - 1
            self._reset(i, None)
            self._replay(i, state["actions"][at : at + steps])
            at += steps
        return np.array_equal(self.observations, state["observations"])

    def _replay(self, i: int, actions: NDArray[Any]) -> None:
        _, step = self._steps[i]
        observation: Any = None
        for action in self._range.to_env(actions):
            observation, reward, *_ = step(action)
            self._returns[i] += float(reward)
        if len(actions):
            self.observations[i] = self._flatten(observation)
            self._lengths[i] = len(actions)
            self._actions[i] = list(actions.copy())

    def _reset(self, i: int, _seed: int | None) -> None:
        self._episodes[i] += 1
        self._actions[i].clear()
        stream = np.random.SeedSequence([*self._stream, i, int(self._episodes[i])])
        super()._reset(i, int(stream.generate_state(1)[0]))
