"""A task whose rows say where they are from: machine, sampler, environment and step, with a checksum.

Every environment leaves a file in `count_dir` with how many steps it has made, whatever becomes of their rows. Its
name is what the rows say.
"""

from __future__ import annotations

import itertools
import mmap
import os
import socket
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

ENV_ID = "Cluster/Numbered-v0"
EPISODE_STEPS = 50
FIELDS = ("machine", "pid", "born", "env", "step", "checksum")
MODULUS = 2**20
SCALE = 2.0**-20  # exact, and networks can take it; float32 holds whole numbers up to 2**24 times this
FACTORS = np.array([3, 5, 7, 11, 13], np.int64)

_envs_of_process = itertools.count()


def checksum(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return what belongs behind the numbers of a row, which are its last axis."""
    return np.asarray(numbers.astype(np.int64) @ FACTORS % MODULUS)


class Numbered(gymnasium.Env[Any, Any]):
    """Steps are cheap, or take `step_s`; nothing can be learnt. fails_on: a host on which there are none."""

    def __init__(self, count_dir: str, step_s: float = 0.0, fails_on: str = "") -> None:
        self.observation_space: spaces.Space[Any] = spaces.Box(-1.0, 16.0, (len(FIELDS),), np.float32)
        self.action_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (1,), np.float32)
        digits = [character for character in socket.gethostname() if character.isdecimal()]
        born = time.time_ns() // 10**6 % MODULUS  # with it no two processes are the same, although numbers return
        self._source = (int("".join(digits) or 0), os.getpid() % MODULUS, born, next(_envs_of_process))
        self._step_s, self._step, self._steps_left = step_s, 0, 0
        self._fails_on = fails_on
        with (Path(count_dir) / "-".join(map(str, self._source))).open("w+b") as file:
            file.truncate(8)
            self._count = mmap.mmap(file.fileno(), 8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._steps_left = EPISODE_STEPS
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        del action
        if socket.gethostname() == self._fails_on:
            raise RuntimeError(f"there are no steps on {self._fails_on}")
        if self._step_s:
            time.sleep(self._step_s)  # as long as a step of a task takes
        self._step += 1
        self._steps_left -= 1
        self._count[:] = self._step.to_bytes(8, "little")
        return self._observe(), 0.0, False, self._steps_left <= 0, {}

    def _observe(self) -> NDArray[np.float32]:
        numbers = np.array([*self._source, self._step], np.int64)
        return (SCALE * np.append(numbers, checksum(numbers))).astype(np.float32)


gymnasium.register(ENV_ID, Numbered)
