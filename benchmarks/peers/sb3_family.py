"""Train SAC of Stable-Baselines3 or of SBX, with the library's defaults, until an evaluation reaches a return.

In: the library and a seed. Out: a JSON file with when it got there, after how many steps and updates. It runs
in the peers' own environment, so it imports nothing of Spreeze.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

FIRST_LINE_AT = time.monotonic()  # before the imports that take seconds

import gymnasium as gym  # noqa: E402
import numpy as np  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402

if TYPE_CHECKING:
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

DISTRIBUTIONS = {"sb3": "stable-baselines3", "sbx": "sbx-rl"}
NO_STEP_LIMIT = 10**9  # the clock or the target ends the run; the learning rate does not depend on this number


class Evaluator:
    """Plays one episode in each of its environments, with one call of the policy a step for all of them."""

    def __init__(self, env: str, episodes: int, seed: int) -> None:
        self._envs = [gym.make(env) for _ in range(episodes)]
        # The second word keeps these seeds apart from the one the training environment gets.
        self._seeds = np.random.Generator(np.random.PCG64([seed, 1]))

    def mean_return(self, model: OffPolicyAlgorithm) -> float:
        """Score the deterministic policy on episodes it has not played before."""
        seeds = self._seeds.integers(2**31, size=len(self._envs)).tolist()
        resets = [env.reset(seed=seed) for env, seed in zip(self._envs, seeds, strict=True)]
        observations = np.stack([observation for observation, _ in resets])  # (episodes, obs_dim)
        returns = np.zeros(len(self._envs))
        playing = set(range(len(self._envs)))
        while playing:
            # Ended episodes stay in the batch: for every new batch size JAX would compile the policy again.
            actions, _ = model.predict(observations, deterministic=True)
            for i in sorted(playing):
                observations[i], reward, terminated, truncated, _ = self._envs[i].step(actions[i])
                returns[i] += float(reward)
                if terminated or truncated:
                    playing.remove(i)
        return float(returns.mean())


class StopAtTarget(BaseCallback):
    """Evaluates every so many steps, keeps the clock, and ends the training at the target or the time limit."""

    def __init__(self, arguments: argparse.Namespace, evaluator: Evaluator, started_at: float) -> None:
        super().__init__()
        self._arguments, self._evaluator, self._started_at = arguments, evaluator, started_at
        self.evaluation_s = 0.0
        self.evaluations: list[tuple[float, int, float]] = []
        self.reached = False

    def wall_s(self) -> float:
        """Return the seconds since the command started."""
        return time.monotonic() - self._started_at

    def _on_step(self) -> bool:
        # The limit is on training alone, so a run is never cut short by what its evaluations took.
        if self.wall_s() - self.evaluation_s >= self._arguments.max_seconds:
            return False
        if self.num_timesteps % self._arguments.eval_every_steps == 0:
            self._evaluate()
        return not self.reached

    def _evaluate(self) -> None:
        began_s = self.wall_s()
        mean_return = self._evaluator.mean_return(self.model)  # type: ignore[arg-type]
        ended_s = self.wall_s()
        self.evaluation_s += ended_s - began_s
        self.evaluations.append((round(ended_s, 3), self.num_timesteps, mean_return))
        self.reached = mean_return >= self._arguments.target_return


def main() -> None:
    """Train, and write what was reached."""
    started_at = command_started_at()
    arguments = parse_arguments()
    model = make_model(arguments.library, arguments.env, arguments.seed)
    evaluator = Evaluator(arguments.env, arguments.eval_episodes, arguments.seed)
    stop = StopAtTarget(arguments, evaluator, started_at)
    model.learn(NO_STEP_LIMIT, callback=stop)
    wall_s = stop.evaluations[-1][0] if stop.reached else stop.wall_s()
    arguments.json.write_text(json.dumps(report(arguments, model, stop, wall_s), indent=2) + "\n")


def make_model(library: str, env: str, seed: int) -> OffPolicyAlgorithm:
    """Build the library's SAC as its first example does."""
    sac: Any
    if library == "sbx":
        from sbx import SAC as sac  # noqa: N811
    else:
        from stable_baselines3 import SAC as sac  # noqa: N811
    model: OffPolicyAlgorithm = sac("MlpPolicy", gym.make(env), seed=seed)
    return model


def report(
    arguments: argparse.Namespace, model: OffPolicyAlgorithm, stop: StopAtTarget, wall_s: float
) -> dict[str, Any]:
    """Return the content of the JSON file."""
    from importlib.metadata import version

    return {
        "library": arguments.library,
        "version": version(DISTRIBUTIONS[arguments.library]),
        "seed": arguments.seed,
        "reached": stop.reached,
        "wall_s": round(wall_s, 3),
        "evaluation_s": round(stop.evaluation_s, 3),
        "time_to_target_s": round(wall_s - stop.evaluation_s, 3) if stop.reached else None,
        "env_steps": model.num_timesteps,
        "updates": model._n_updates,  # neither library has a public name for it
        "evaluations": stop.evaluations,
    }


def command_started_at() -> float:
    """Return when this process started, on the clock of time.monotonic(), as `spreeze train` does."""
    try:
        # Field 22 of stat, counted in ticks since boot; the command's own name before it may hold spaces.
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):
        return FIRST_LINE_AT  # elsewhere than Linux; later by what the interpreter took to start
    return time.monotonic() - max(0.0, age_s)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Time SAC of Stable-Baselines3 or SBX to a target return.")
    parser.add_argument("library", choices=tuple(DISTRIBUTIONS))
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--target-return", type=float, default=-200.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-seconds", type=float, default=180.0, help="limit, not counting evaluations")
    parser.add_argument("--json", type=Path, required=True, help="write the result here")
    parser.add_argument("--eval-every-steps", type=int, default=250)
    parser.add_argument("--eval-episodes", type=int, default=10)
    return parser.parse_args()


if __name__ == "__main__":
    main()
