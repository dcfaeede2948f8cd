"""Pendulum whose time limit is an end, and Pendulum with a torque of two digits; registered on import."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

DIGITS = 3  # values of each: nine torques


class Ending(gym.Wrapper[Any, Any, Any, Any]):
    """Says of a truncated episode that it is terminated."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated or truncated, False, info


class Digits(gym.ActionWrapper[Any, Any, Any]):
    """An action of two components, the first of which counts three times as much."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.action_space = gym.spaces.MultiDiscrete([DIGITS, DIGITS])

    def action(self, action: Any) -> Any:
        place = (DIGITS * int(action[0]) + int(action[1])) / (DIGITS**2 - 1)
        return np.array([4.0 * place - 2.0], np.float32)


def make_ending(**kwargs: Any) -> gym.Env[Any, Any]:
    return Ending(gym.make("Pendulum-v1", **kwargs))


def make_digits(**kwargs: Any) -> gym.Env[Any, Any]:
    return Digits(gym.make("Pendulum-v1", **kwargs))


gym.register("EndingPendulum-v1", make_ending)
gym.register("PendulumDigits-v1", make_digits)
