"""The environment's own speed: bare loops with random actions and no policy, in processes of their own, all at once.

In: an environment and how many loops. Out: environment steps a second of each. Run as a program, it is one loop.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
import time
from typing import IO

import numpy as np

from spreeze.child import thread_variables
from spreeze.envs import EnvSpec, make_env
from spreeze.errors import ProcessFailed

SETTLE_S = 0.5  # with all loops at work: caches, page faults and the CPU's clock
# Steps between two looks at the clock: nothing beside 16 steps, and soon over where a step takes milliseconds.
BLOCK_STEPS = 16
BLOCKS = 64


def measure_raw_loops(env: str, seconds: float, loop_count: int) -> list[float]:
    """Return the rates of loops that run side by side, each over the same window."""
    loops: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryFile() as errors:  # not a pipe: nobody reads it while the loops run
        try:
            for _ in range(loop_count):
                loops.append(_start_loop(env, errors))
            for loop in loops:
                _answer(loop, errors)  # its environment is made
            began = time.monotonic() + SETTLE_S
            for loop in loops:
                _tell(loop, f"{began} {began + seconds}")
            return [float(_answer(loop, errors)) for loop in loops]
        finally:
            for loop in loops:
                loop.kill()
                loop.communicate()  # closes its pipes, and waits


def _start_loop(env: str, errors: IO[bytes]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "spreeze.bench.raw_loop", env],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env={**os.environ, **thread_variables(1)},
    )


def _tell(loop: subprocess.Popen[str], line: str) -> None:
    assert loop.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it died: the answer that does not come says why
        loop.stdin.write(line + "\n")
        loop.stdin.flush()


def _answer(loop: subprocess.Popen[str], errors: IO[bytes]) -> str:
    assert loop.stdout is not None
    line = loop.stdout.readline()
    if not line:
        code = loop.wait()
        errors.seek(0)
        said = errors.read().decode(errors="replace")
        last = said.strip().splitlines()[-1:] or [f"it exited with code {code}"]
        raise ProcessFailed("bare loop", last[0], said)
    return line


def main() -> None:
    """Run one loop: say when it is ready, read the window from stdin, answer with the rate in it."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the environment prints must not look like an answer
    env = make_env(EnvSpec(sys.argv[1]))
    # Drawn beforehand: the loop measures the environment, not the random numbers.
    low, high = (np.asarray(getattr(env.action_space, bound)) for bound in ("low", "high"))
    drawn = np.random.default_rng(0).uniform(low, high, (BLOCKS, BLOCK_STEPS, *low.shape)).astype(low.dtype)
    blocks = itertools.cycle(drawn)
    env.reset(seed=0)

    def loop_until(moment: float) -> tuple[int, float]:
        steps = 0
        while True:
            for action in next(blocks):
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()
            steps += BLOCK_STEPS
            if (now := time.monotonic()) >= moment:
                return steps, now

    print("ready", file=answers, flush=True)
    window = sys.stdin.readline().split()
    if not window:
        return  # whoever asked is gone
    # All processes of a machine share the clock of time.monotonic().
    _, began = loop_until(float(window[0]))
    steps, ended = loop_until(float(window[1]))
    print(steps / (ended - began), file=answers, flush=True)


if __name__ == "__main__":
    main()
