"""Scores a policy: plays episodes with its most likely actions and reports their returns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from spreeze.channels.rejected_rows import is_usable
from spreeze.environments.stepped import Environments
from spreeze.policy.actor import Actor

# An environment without a time limit could keep an evaluation for ever: its episode is cut here.
MAX_EPISODE_STEPS = 50_000


@dataclass(frozen=True)
class Scores:
    """The episodes of one evaluation."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]

    @property
    def mean(self) -> float:
        """Mean return; NaN if there is a return that cannot be used."""
        return float(np.mean(self.returns)) if all(map(is_usable, self.returns)) else math.nan

    @property
    def std(self) -> float:
        """Standard deviation of the returns, likewise."""
        return float(np.std(self.returns)) if all(map(is_usable, self.returns)) else math.nan


def score(
    actor: Actor,
    envs: Environments,
    seeds: list[int],
    stopping: Callable[[], bool] = lambda: False,
    ended: Callable[[float], None] = lambda _: None,
) -> Scores | None:
    """Play one episode in each environment, all at once; None if asked to stop before they ended.

    ended: called with the return of each episode when it ends.
    """
    envs.reset(seeds)
    results: dict[int, tuple[float, int]] = {}
    turns = 0
    while len(results) < len(envs):
        if stopping():
            return None
        for env, episode_return, length in envs.step(actor.mean(envs.observations)):
            if env not in results:  # some play on, unseen
                results[env] = (episode_return, length)
                ended(episode_return)
            envs.rest(env)
        turns += 1
        if turns >= MAX_EPISODE_STEPS:  # before that, no environment can have made as many steps
            _cut(envs, results, ended)
    ordered = [results[env] for env in range(len(envs))]
    return Scores(tuple(float(r) for r, _ in ordered), tuple(length for _, length in ordered))


def _cut(envs: Environments, results: dict[int, tuple[float, int]], ended: Callable[[float], None]) -> None:
    """End the episodes that have no end."""
    for env in range(len(envs)):
        if env not in results and (so_far := envs.so_far(env))[1] >= MAX_EPISODE_STEPS:
            results[env] = so_far
            ended(so_far[0])
            envs.rest(env)
