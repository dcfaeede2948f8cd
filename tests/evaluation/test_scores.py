"""Scoring a policy: one episode for each environment, whatever happens to the others meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

from spreeze.config.env_spec import EnvSpec
from spreeze.environments.backend import make_envs
from spreeze.environments.batch import EnvBatch
from spreeze.environments.stepped import Environments
from spreeze.evaluation import scores
from spreeze.evaluation.scores import Scores, score
from spreeze.policy.actor import GaussianActor, random_actor


class Counter(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Rewards 1 a step; ends after as many steps as its seed says, or never."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))
    steps = 0
    """Of all such environments together."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._left = seed or 0
        return np.zeros(2, np.float32), {}

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        Counter.steps += 1
        self._left -= 1
        return np.zeros(2, np.float32), 1.0, False, self._left == 0, {}


in_turn_and_in_threads = pytest.mark.parametrize("has_threads", [False, True])


def counters(seeds: list[int], has_threads: bool) -> Environments:
    return make_envs(EnvSpec("Counter()", factory=Counter, has_threads=has_threads), len(seeds), seeds)


def play(seeds: list[int], has_threads: bool, ended: Callable[[float], None] = lambda _: None) -> Scores | None:
    envs = counters(seeds, has_threads)
    return score(GaussianActor(random_actor(2, 1, (4,), seed=0), len(seeds)), envs, seeds, ended=ended)


@in_turn_and_in_threads
def test_each_environment_counts_once(has_threads: bool) -> None:
    assert play([3, 7, 5], has_threads) == Scores((3.0, 7.0, 5.0), (3, 7, 5))


@in_turn_and_in_threads
def test_nothing_is_played_that_does_not_count(has_threads: bool) -> None:
    seeds, others = [3, 7, 5], [2, 1, 6]
    envs = counters(seeds, has_threads)
    actor = GaussianActor(random_actor(2, 1, (4,), seed=0), len(seeds))
    before = Counter.steps

    assert score(actor, envs, seeds) == Scores((3.0, 7.0, 5.0), (3, 7, 5))
    assert Counter.steps - before == sum(seeds)
    # All of them are there again for the next version.
    assert score(actor, envs, others) == Scores((2.0, 1.0, 6.0), (2, 1, 6))
    assert Counter.steps - before == sum(seeds) + sum(others)


@in_turn_and_in_threads
def test_episode_without_an_end_is_cut(monkeypatch: pytest.MonkeyPatch, has_threads: bool) -> None:
    monkeypatch.setattr(scores, "MAX_EPISODE_STEPS", 30)
    ended: list[float] = []
    assert play([3, 0], has_threads, ended.append) == Scores((3.0, 30.0), (3, 30))
    assert ended == [3.0, 30.0]


@in_turn_and_in_threads
def test_episodes_are_counted_as_they_end(has_threads: bool) -> None:
    envs, ended = counters([7, 3, 5], has_threads), list[float]()
    actor = GaussianActor(random_actor(2, 1, (4,), seed=0), 3)
    so_far: list[int] = []
    assert score(actor, envs, [7, 3, 5], lambda: so_far.append(len(ended)), ended.append) is not None
    assert sorted(ended) == [3.0, 5.0, 7.0]
    assert so_far[0] == 0
    assert {1, 2} <= set(so_far) or has_threads  # threads are no faster than one another


def test_stop_is_heard_between_steps() -> None:
    envs = EnvBatch(EnvSpec("Counter()", factory=Counter), 1, [5])
    assert score(GaussianActor(random_actor(2, 1, (4,), seed=0), 1), envs, [5], stopping=lambda: True) is None


def test_mean_and_spread() -> None:
    scores = Scores((1.0, 3.0), (10, 10))
    assert scores.mean == 2.0
    assert scores.std == 1.0
