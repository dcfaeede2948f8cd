"""The protocol that all peers run by: one command line, one clock, one evaluation, one set of counters, one JSON.

In: after every few environment steps, a runner says how far it is and how its policy acts. Out: whether to go on, and
at the end a JSON file. It runs in the peers' own environments: of NumPy, Gymnasium and the standard library alone.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

FIRST_LINE_AT = time.monotonic()  # before the imports that take seconds

import gymnasium as gym  # noqa: E402
import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

HIDDEN = (256, 256)
"""Of all peers with continuous actions, and of the others where a window measures throughput."""
BATCH_SIZE = 256
LEARNING_RATE = 3e-4
"""Of actor, critics and temperature: the default of most, and that of SAC's authors."""
SETTLE_S = 2.0  # after the first update, as `spreeze bench throughput` waits
EVALUATION_SHARE = 4.0  # of an evaluation's length must be trained before the next: at most a fifth of the wall time
PACKAGES = ("torch", "jax", "gymnasium", "mujoco", "numpy")

Act = Callable[[NDArray[np.float32]], NDArray[Any]]
"""Observations (episodes, obs_dim) to the deterministic policy's actions, in the units of the environment. Discrete
actions are one integer for each episode."""


@dataclass(frozen=True)
class Counts:
    """How far a training was. The clock counts from the command's start, without evaluations."""

    clock_s: float
    env_steps: int
    updates: int


class Trial:
    """Keeps the clock of one run: reads the counters, evaluates, and says when it is over."""

    def __init__(self, name: str, packages: Sequence[str], arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self._name, self._packages = name, (*packages, *PACKAGES)
        self._started_at = command_started_at()
        self._evaluator = Evaluator(arguments.env, arguments.eval_episodes, arguments.seed, arguments.subprocesses)
        self._evaluation_s = 0.0
        self._evaluate_at_s = 0.0
        self._evaluated_updates = 0
        self._evaluations: list[dict[str, Any]] = []
        self._opened: Counts | None = None
        self._opens_at_s = math.inf
        self._last = Counts(0.0, 0, 0)
        self._reached = False

    def goes_on(self, env_steps: int, updates: int, act: Act) -> bool:
        """Take note of how far the training is; evaluate if it is time to. False: stop training, and finish()."""
        now = self._count(env_steps, updates)
        if self.arguments.window is not None:
            is_full = self._opened is not None and now.clock_s >= self._opened.clock_s + self.arguments.window
            return not is_full and now.clock_s < self.arguments.max_seconds
        # Without updates the policy is still the random one, or the one that was evaluated last: PPO collects for
        # seconds between two rounds of updates, and more episodes of the same policy would be more draws.
        if updates > self._evaluated_updates and now.clock_s >= self._evaluate_at_s:
            self._evaluate(now, act)
        # The limit is on training alone, so a run is never cut short by what its evaluations took.
        return not self._reached and self._clock_s() < self.arguments.max_seconds

    def finish(self, device: str, **settings: Any) -> None:
        """Write the JSON file. settings: what the runner chose, for a reader who wants to repeat it."""
        arguments = self.arguments
        numbers = ("seed", "batch_size", "envs", "updates_per_vector_step", "target_return", "window")
        shared = ("hidden", "env", "subprocesses", *numbers)
        content = {
            "peer": self._name,
            "settings": {**{name: getattr(arguments, name) for name in shared}, **settings},
            "versions": {"python": sys.version.split()[0], **installed(self._packages)},
            "device": device,
            "reached": self._reached,
            "time_to_target_s": self._evaluations[-1]["clock_s"] if self._reached else None,
            "clock_s": self._last.clock_s,
            "evaluation_s": round(self._evaluation_s, 3),
            "env_steps": self._last.env_steps,
            "updates": self._last.updates,
            **self._rates(),
            "evaluations": self._evaluations,
        }
        arguments.json.write_text(json.dumps(content, indent=2) + "\n")

    def _clock_s(self) -> float:
        return time.monotonic() - self._started_at - self._evaluation_s

    def _count(self, env_steps: int, updates: int) -> Counts:
        now = self._last = Counts(round(self._clock_s(), 3), int(env_steps), int(updates))
        if updates and self._opens_at_s == math.inf:
            self._opens_at_s = now.clock_s + SETTLE_S
        if self._opened is None and now.clock_s >= self._opens_at_s:
            self._opened = now
        return now

    def _evaluate(self, now: Counts, act: Act) -> None:
        self._evaluated_updates = now.updates
        began_at = time.monotonic()
        mean_return = self._evaluator.mean_return(act)
        took_s = time.monotonic() - began_at
        self._evaluation_s += took_s
        self._evaluations.append({**asdict(now), "mean_return": mean_return})
        self._evaluate_at_s = now.clock_s + max(self.arguments.eval_interval_s, EVALUATION_SHARE * took_s)
        target = self.arguments.target_return
        self._reached = target is not None and mean_return >= target

    def _rates(self) -> dict[str, Any]:
        """Return what was counted from SETTLE_S after the first update on; None where that never came."""
        names = ("window_began_s", "window_s", "sampling_hz", "update_hz", "update_frame_hz")
        if self._opened is None or self._last.clock_s <= self._opened.clock_s:
            return dict.fromkeys(names)
        seconds = self._last.clock_s - self._opened.clock_s
        update_hz = (self._last.updates - self._opened.updates) / seconds
        sampling_hz = (self._last.env_steps - self._opened.env_steps) / seconds
        figures = (self._opened.clock_s, seconds, sampling_hz, update_hz, update_hz * self.arguments.batch_size)
        return {name: round(figure, 3) for name, figure in zip(names, figures, strict=True)}


class Evaluator:
    """Plays one episode in each of its environments, with one call of the policy a step for all of them."""

    def __init__(self, env: str, episodes: int, seed: int, side_by_side: bool = False) -> None:
        """side_by_side: whether environments are stepped in threads, because they wait."""
        self._envs = [gym.make(env) for _ in range(episodes)]
        self._are_choices = isinstance(self._envs[0].action_space, gym.spaces.Discrete)
        self._threads = ThreadPoolExecutor(episodes) if side_by_side else None
        # The second word keeps these seeds apart from the one the training environments get.
        self._seeds = np.random.Generator(np.random.PCG64([seed, 1]))

    def mean_return(self, act: Act) -> float:
        """Score the deterministic policy on episodes it has not played before."""
        seeds = self._seeds.integers(2**31, size=len(self._envs)).tolist()
        resets = [env.reset(seed=seed) for env, seed in zip(self._envs, seeds, strict=True)]
        observations = np.stack([observation for observation, _ in resets]).astype(np.float32)  # (episodes, obs_dim)
        returns = np.zeros(len(self._envs))
        playing = set(range(len(self._envs)))
        while playing:
            # Ended episodes stay in the batch: for every new batch size JAX would compile the policy again.
            actions = act(observations)
            if self._are_choices:
                actions = self._as_choices(actions)
            order = sorted(playing)
            step_all = map if self._threads is None else self._threads.map
            steps = step_all(lambda i, actions=actions: self._envs[i].step(actions[i]), order)
            for i, (observations[i], reward, terminated, truncated, _) in zip(order, steps, strict=True):
                returns[i] += float(reward)
                if terminated or truncated:
                    playing.remove(i)
        return float(returns.mean())

    def _as_choices(self, actions: NDArray[Any]) -> list[int]:
        """Return what environments with discrete actions take; a column or numbers with fractions are a mistake."""
        if actions.shape != (len(self._envs),) or not np.issubdtype(actions.dtype, np.integer):
            wrong = f"{actions.dtype} of shape {actions.shape}"
            raise TypeError(f"the policy gave {wrong}, not an integer for each of {len(self._envs)} episodes")
        return [int(action) for action in actions]


# --- the process -----------------------------------------------------------------------------------------------


def command_started_at() -> float:
    """Return when this process started, on the clock of time.monotonic(), as `spreeze train` does."""
    try:
        # Field 22 of stat, counted in ticks since boot; the command's own name before it may hold spaces.
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):
        return FIRST_LINE_AT  # elsewhere than Linux; later by what the interpreter took to start
    return time.monotonic() - max(0.0, age_s)


def installed(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of those packages that are there."""
    found = {}
    for name in dict.fromkeys(packages):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


# --- the command line ------------------------------------------------------------------------------------------


def parse_arguments(
    description: str, envs: int | None = 1, batch_size: int | None = BATCH_SIZE
) -> argparse.Namespace:
    """Read the command line that all runners have; exit code 2 if it is wrong.

    envs: how many environments, with one update for each, where it leaves that open; None: the runner chooses.
    batch_size: likewise. The runner writes what it chooses into the result, and the widths of its layers as `hidden`.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, required=True, help="write the result here")
    parser.add_argument("--target-return", type=float, help="end at the first evaluation with this mean")
    parser.add_argument("--max-seconds", type=float, default=180.0, help="limit, not counting evaluations")
    parser.add_argument("--window", type=float, help="measure throughput over this many seconds; no evaluations")
    parser.add_argument("--batch-size", type=int, default=batch_size)
    parser.add_argument("--envs", type=int, help="environments stepped together; by default the runner's choice")
    parser.add_argument("--updates-per-vector-step", type=int, help="by default one for each environment")
    parser.add_argument("--subprocesses", action="store_true", help="a process for each environment, where it can")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--eval-interval-s", type=float, default=1.0, help="of training, between two evaluations")
    parser.add_argument("--eval-episodes", type=int, default=10)
    arguments = parser.parse_args()
    for name in ("max_seconds", "window", "batch_size", "envs", "updates_per_vector_step", "eval_episodes"):
        value = getattr(arguments, name)
        if value is not None and not (value > 0 and math.isfinite(value)):
            parser.error(f"--{name.replace('_', '-')} must be above 0, not {value}")
    module, _, name = arguments.env.rpartition(":")
    if module:
        importlib.import_module(module)
    if name not in gym.registry:
        parser.error(f"--env {arguments.env}: Gymnasium has no such environment")
    if not arguments.json.absolute().parent.is_dir():
        parser.error(f"--json {arguments.json}: there is no such folder")
    arguments.envs = arguments.envs or envs
    arguments.updates_per_vector_step = arguments.updates_per_vector_step or (envs and arguments.envs)
    arguments.hidden = HIDDEN
    return arguments
