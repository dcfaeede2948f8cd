"""`spreeze evaluate`: scores the policy of a run in its own environment."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np

from spreeze.channels.rejected_rows import MAX_MAGNITUDE, is_usable
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.backend import make_envs
from spreeze.environments.make import spec_for_evaluation
from spreeze.errors import ConfigError, RunFailed, SpreezeError, one_line
from spreeze.evaluation.scores import Scores, score
from spreeze.host.capture_output import capture_output
from spreeze.host.json_text import json_text
from spreeze.host.output_files import require_writable
from spreeze.policy.file import load_policy
from spreeze.policy.fit import require_fit
from spreeze.policy.which import Which, choose_weights
from spreeze.runs.run_folder import read_run_config

EVALUATION_ENVS = 20  # environments played at once


def evaluate_run(path: Path, episodes: int, seed: int, json_path: Path | None, which: Which = None) -> Scores:
    """Score the policy of a run in its own environment, and print mean and spread."""
    if episodes < 1 or seed < 0:
        raise ConfigError(f"--episodes must be at least 1 and --seed at least 0, not {episodes} and {seed}")
    chosen, is_run = choose_weights(path, which), path.is_dir()
    file = chosen.file
    policy = load_policy(file, path if is_run else None)
    run = path if is_run else file.parent.parent
    config = read_run_config(run)
    json_path = require_writable(json_path)
    chosen.say_why()
    rng = np.random.default_rng(seed)
    returns: list[float] = []
    lengths: list[int] = []
    while len(returns) < episodes:
        count = min(episodes - len(returns), 1 if config.sampling.realtime else EVALUATION_ENVS)
        seeds: list[int] = rng.integers(2**31, size=count).tolist()
        try:
            with capture_output(Path(os.devnull)):
                envs = make_envs(spec_for_evaluation(EnvSpec.of(config)), count, seeds)
                with contextlib.closing(envs):
                    require_fit(policy.spaces, envs.spaces, config.env, run)
                    scores = score(policy.actor(count), envs, seeds)
        except SpreezeError:
            raise
        except Exception as error:
            raise RunFailed(f"{config.env} raised {type(error).__name__}: {one_line(error)}") from error
        assert scores is not None  # there is no request to stop it
        returns += scores.returns
        lengths += scores.lengths
    result = Scores(tuple(returns), tuple(lengths))
    print(f"{config.env}, version {policy.version} of {file}")
    usable = [each for each in returns if is_usable(each)]
    if len(usable) == episodes:
        print(f"return {result.mean:.2f} ± {result.std:.2f} over {episodes} episodes (seed {seed})")
    else:
        print(
            f"no return over {episodes} episodes (seed {seed}): "
            f"{episodes - len(usable)} of them have one that is not finite or beyond {MAX_MAGNITUDE:.0e}"
        )
    lowest_highest = f"lowest {min(usable):.2f}, highest {max(usable):.2f}, " if usable else ""
    print(f"{lowest_highest}mean length {np.mean(lengths):.1f} steps")
    if json_path is not None:
        figures = {
            "mean_return": result.mean,
            "std_return": result.std,
            "returns": returns,
            "lengths": lengths,
        }
        json_path.write_text(
            json_text({"env": config.env, "version": policy.version, "seed": seed, **figures}) + "\n"
        )
    return result
