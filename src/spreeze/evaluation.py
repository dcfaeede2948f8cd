"""Scores a policy: plays episodes with its most likely actions and reports their returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from spreeze.envs import EnvBatch
from spreeze.policy import GaussianActor

# An environment without a time limit could keep an evaluation for ever; Gymnasium's longest limits are 1,000.
MAX_EPISODE_STEPS = 50_000


@dataclass(frozen=True)
class Scores:
    """The episodes of one evaluation."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation of the returns."""
        return float(np.std(self.returns))


def score(
    actor: GaussianActor, envs: EnvBatch, seeds: list[int], stopping: Callable[[], bool] = lambda: False
) -> Scores | None:
    """Play one episode in each environment, all at once; None if asked to stop before they ended."""
    envs.reset(seeds)
    results: dict[int, tuple[float, int]] = {}
    for _ in range(MAX_EPISODE_STEPS):
        if stopping():
            return None
        # Environments whose episode is over play on, unseen, until the last one is done: one batch for all.
        for env, episode_return, length in envs.step(actor.mean(envs.observations)):
            results.setdefault(env, (episode_return, length))
        if len(results) == len(envs):
            break
    else:
        raise RuntimeError(
            f"an episode did not end within {MAX_EPISODE_STEPS} steps: limit it with --max-episode-steps"
        )
    ordered = [results[env] for env in range(len(envs))]
    return Scores(tuple(float(r) for r, _ in ordered), tuple(length for _, length in ordered))


def evaluate_run(path: Path, episodes: int, seed: int, json_path: Path | None) -> Scores:
    """Score the policy of a run in its own environment, and print mean and spread."""
    if episodes < 1:
        raise ConfigError(f"--episodes must be at least 1, not {episodes}")
    weights_path = find_weights(path)
    policy = load_policy(weights_path)
    run = path if path.is_dir() else weights_path.parent.parent
    config = read_run_config(run)
    envs = EnvBatch(env_spec(config), min(episodes, MAX_EVALUATION_ENVS), [0] * min(episodes, MAX_EVALUATION_ENVS))
    rng = np.random.default_rng(seed)
