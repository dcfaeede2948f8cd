"""The speed of the environment alone: bare loops in separate processes, all at the same time.

In: an environment and the number of loops. Out: environment steps per second of each. Actions are random and drawn
beforehand, or a policy's: contacts make the steps of a body that walks more expensive than of one that falls at once.
The policy's own time does not count. Run as a program, this module is one loop.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import gymnasium
import numpy as np

from spreeze.config.env_spec import EnvSpec
from spreeze.environments.actions import env_actions
from spreeze.environments.make import make_env
from spreeze.environments.spaces import spaces_of
from spreeze.errors import ProcessFailed
from spreeze.host.programs import python, python_path
from spreeze.host.threads import thread_variables
from spreeze.policy.file import load_policy

SETTLE_S = 0.5  # while all loops run: caches, page faults and the CPU's clock
# Steps between two readings of the clock, whose cost is small compared with 16 steps; short even if a step is slow.
BLOCK_STEPS = 16
BLOCKS = 64


def measure_raw_loops(env: str, seconds: float, loop_count: int, policy: Path | None = None) -> list[float]:
    """Return the rates of loops that run at the same time, all over the same window."""
    loops: list[subprocess.Popen[str]] = []
    with contextlib.ExitStack() as files:
        # Not pipes, which are not read while the loops run; one file each, so that error messages do not mix.
        errors = [files.enter_context(tempfile.TemporaryFile()) for _ in range(loop_count)]
        try:
            for stderr in errors:
                loops.append(_start_loop(env, policy, stderr))
            for loop, stderr in zip(loops, errors, strict=True):
                _answer(loop, stderr)  # its environment is made
            began = time.monotonic() + SETTLE_S
            for loop in loops:
                _send(loop, f"{began} {began + seconds}")
            return [float(_answer(loop, stderr)) for loop, stderr in zip(loops, errors, strict=True)]
        finally:
            for loop in loops:
                loop.kill()
                loop.communicate()  # closes its pipes, and waits


def _start_loop(env: str, policy: Path | None, errors: IO[bytes]) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 (this module, with words of the user's own)
        python("-m", "spreeze.commands.bench.raw_loop", env, *([str(policy)] if policy else [])),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env={**os.environ, "PYTHONPATH": python_path(), **thread_variables(1)},
    )


def _send(loop: subprocess.Popen[str], line: str) -> None:
    assert loop.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it died: `_answer` raises the reason
        loop.stdin.write(line + "\n")
        loop.stdin.flush()


def _answer(loop: subprocess.Popen[str], errors: IO[bytes]) -> str:
    assert loop.stdout is not None
    line = loop.stdout.readline()
    if not line:
        code = loop.wait()
        errors.seek(0)
        output = errors.read().decode(errors="replace")
        last = output.strip().splitlines()[-1:] or [f"it exited with code {code}"]
        raise ProcessFailed("bare loop", last[0], output)
    return line


def main() -> None:
    """Run one loop: print when it is ready, read the window from stdin, print the rate in it."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of the environment must not mix with answers
    env = make_env(EnvSpec(sys.argv[1]))
    play_block = _policy_player(env, Path(sys.argv[2])) if len(sys.argv) > 2 else _random_player(env)

    def loop_until(moment: float) -> tuple[int, float]:
        steps, spent = 0, 0.0
        while not steps or time.monotonic() < moment:  # one block at least: on a busy machine the moment may be over
            spent += play_block()
            steps += BLOCK_STEPS
        return steps, spent

    print("ready", file=answers, flush=True)
    window = sys.stdin.readline().split()
    if not window:
        return  # the parent process is gone
    # All processes of a machine share the clock of time.monotonic().
    loop_until(float(window[0]))
    steps, spent = loop_until(float(window[1]))
    print(steps / spent, file=answers, flush=True)


def _random_player(env: gymnasium.Env[Any, Any]) -> Callable[[], float]:
    # Drawn beforehand: the loop measures the environment, not the random numbers.
    actions = env_actions(spaces_of(env, "the environment").action)
    drawn = actions.to_env(actions.draw(BLOCKS * BLOCK_STEPS, np.random.default_rng(0)))
    blocks = itertools.cycle(drawn.reshape(BLOCKS, BLOCK_STEPS, *drawn.shape[1:]))
    env.reset(seed=0)

    def play_block() -> float:
        began = time.perf_counter()
        for action in next(blocks):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return time.perf_counter() - began

    return play_block


def _policy_player(env: gymnasium.Env[Any, Any], path: Path) -> Callable[[], float]:
    policy = load_policy(path)
    observation, _ = env.reset(seed=0)

    def play_block() -> float:
        nonlocal observation
        spent = 0.0
        for _ in range(BLOCK_STEPS):
            action = policy(observation)
            began = time.perf_counter()
            observation, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                observation, _ = env.reset()
            spent += time.perf_counter() - began
        return spent

    return play_block


if __name__ == "__main__":
    main()
