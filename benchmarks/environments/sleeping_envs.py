"""Pendulum whose step sleeps, as a simulator behind a socket or a robot does; registered with Gymnasium on import."""

from __future__ import annotations

import functools
import time
from typing import Any

import gymnasium as gym

STEP_MS = (20, 200)


class Sleeping(gym.Wrapper[Any, Any, Any, Any]):
    """Sleeps in each step."""

    def __init__(self, env: gym.Env[Any, Any], step_s: float) -> None:
        super().__init__(env)
        self._step_s = step_s

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        time.sleep(self._step_s)  # the cost of a step, and none of it on a core
        return super().step(action)


def make_pendulum(step_s: float, **kwargs: Any) -> gym.Env[Any, Any]:
    return Sleeping(gym.make("Pendulum-v1", **kwargs), step_s)


for ms in STEP_MS:
    gym.register(f"SleepingPendulum{ms}ms-v0", functools.partial(make_pendulum, ms / 1000))
