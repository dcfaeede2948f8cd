"""Scores a policy: plays episodes with its most likely actions and reports their returns."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spreeze.env_batch import Environments, make_envs
from spreeze.envs import EnvSpec
from spreeze.errors import ConfigError, RunFailed, SpreezeError, one_line
from spreeze.output import output_to
from spreeze.policy import Actor, find_weights, load_policy
from spreeze.run_folder import read_run_config

# An environment without a time limit could keep an evaluation for ever: its episode is cut here.
MAX_EPISODE_STEPS = 50_000
EVALUATION_ENVS = 20  # environments that `spreeze evaluate` plays at once


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
    actor: Actor, envs: Environments, seeds: list[int], stopping: Callable[[], bool] = lambda: False
) -> Scores | None:
    """Play one episode in each environment, all at once; None if asked to stop before they ended."""
    envs.reset(seeds)
    results: dict[int, tuple[float, int]] = {}
    for _ in range(MAX_EPISODE_STEPS):
        if stopping():
            return None
        for env, episode_return, length in envs.step(actor.mean(envs.observations)):
            results.setdefault(env, (episode_return, length))  # some play on, unseen
            envs.rest(env)
        if len(results) == len(envs):
            break
    ordered = [results.get(env) or envs.so_far(env) for env in range(len(envs))]
    return Scores(tuple(float(r) for r, _ in ordered), tuple(length for _, length in ordered))


def evaluate_run(path: Path, episodes: int, seed: int, json_path: Path | None) -> Scores:
    """Score the policy of a run in its own environment, and print mean and spread."""
    if episodes < 1 or seed < 0:
        raise ConfigError(f"--episodes must be at least 1 and --seed at least 0, not {episodes} and {seed}")
    file = find_weights(path)
    policy = load_policy(file)
    config = read_run_config(path if path.is_dir() else file.parent.parent)
    require_writable(json_path)
    rng = np.random.default_rng(seed)
    returns: list[float] = []
    lengths: list[int] = []
    while len(returns) < episodes:
        count = min(episodes - len(returns), EVALUATION_ENVS)
        seeds: list[int] = rng.integers(2**31, size=count).tolist()
        try:
            with output_to(Path(os.devnull)):
                envs = make_envs(EnvSpec.of(config).for_evaluation(), count, seeds)
                scores = score(policy.actor(count), envs, seeds)
                envs.close()
        except SpreezeError:
            raise
        except Exception as error:
            raise RunFailed(f"{config.env} raised {type(error).__name__}: {one_line(error)}") from error
        assert scores is not None  # nobody can ask it to stop
        returns += scores.returns
        lengths += scores.lengths
    result = Scores(tuple(returns), tuple(lengths))
    print(f"{config.env}, version {policy.version} of {file}")
    print(f"return {result.mean:.2f} ± {result.std:.2f} over {episodes} episodes (seed {seed})")
    print(f"lowest {min(returns):.2f}, highest {max(returns):.2f}, mean length {np.mean(lengths):.1f} steps")
    if json_path is not None:
        figures = {
            "mean_return": result.mean,
            "std_return": result.std,
            "returns": returns,
            "lengths": lengths,
        }
        json_path.write_text(
            json.dumps({"env": config.env, "version": policy.version, "seed": seed, **figures}) + "\n"
        )
    return result


def require_writable(path: Path | None, flag: str = "--json") -> None:
    """Refuse a file that cannot be written, before the work whose results it is for."""
    if path is None:
        return
    is_new = not path.exists()
    try:
        path.open("a").close()
    except OSError as error:
        raise ConfigError(
            f"{flag} {path} cannot be written ({error.strerror}): name a file in a folder that is there and yours"
        ) from None
    if is_new:
        path.unlink()
