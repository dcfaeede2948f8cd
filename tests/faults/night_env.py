"""Environments that fail when a file says so: `Faulty/ID` is the task of that id, for `benchmarks/soak.py`.

In: `switch-ROLE` in a folder, with the name of a fault. The first process of that role that sees it takes it away and
has the fault.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

ROLE = sys.argv[1] if Path(sys.argv[0]).name == "worker_main.py" else "supervise"
BAD_REWARDS = 50
LEAKED_BYTES, PRINTED_BYTES = 500 << 20, 30 << 20


class Faulty(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Has the fault that the switch names, once."""

    def __init__(self, env: gymnasium.Env[Any, Any], folder: str) -> None:
        super().__init__(env)
        self._switch, self._taken = Path(folder, f"switch-{ROLE}"), Path(folder, f"taken-{os.getpid()}")
        self._bad_rewards = 0
        self._leaked = np.empty(0)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, *rest = super().step(action)
        if self._switch.exists():
            observation = self._fail(observation)
        if self._bad_rewards:
            self._bad_rewards, reward = self._bad_rewards - 1, float("nan")
        return observation, reward, *rest  # type: ignore[return-value]

    def _fail(self, observation: Any) -> Any:
        try:
            self._switch.rename(self._taken)
        except FileNotFoundError:
            return observation  # another process was faster
        match self._taken.read_text():
            case "raises":
                raise ZeroDivisionError("the wheel fell off")
            case "exits":
                os._exit(7)
            case "crashes":
                ctypes.string_at(0)
            case "hangs":
                time.sleep(3600)
            case "leaks":
                self._leaked = np.ones(LEAKED_BYTES, np.uint8)
            case "prints":
                print("x" * PRINTED_BYTES, flush=True)
            case "NaN":
                self._bad_rewards = BAD_REWARDS
            case "another shape":
                return np.zeros(99, np.float32)
            case "forks":
                if os.fork() == 0:
                    os.setsid()
                    time.sleep(3600)
        return observation


def make(task: str, folder: str, **kwargs: Any) -> Faulty:
    return Faulty(gymnasium.make(task, **kwargs), folder)


for task in ("HalfCheetah-v5", "Pendulum-v1"):
    gymnasium.register(f"Faulty/{task}", entry_point=partial(make, task))
