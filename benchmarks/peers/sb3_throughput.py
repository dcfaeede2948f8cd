"""Measure updates and environment steps a second of Stable-Baselines3's SAC, with the library's defaults.

In: an environment and the length of a window. Out: a JSON file with the counts and rates of a window that begins a
little after the first update. It runs in the peers' own environment, so it imports nothing of Spreeze.
"""

from __future__ import annotations

import argparse
import json
import time
from importlib.metadata import version
from pathlib import Path

import gymnasium as gym
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback

NO_STEP_LIMIT = 10**9  # the window ends the training
SETTLE_S = 2.0  # after the first update, as `spreeze bench throughput` waits


class Window(BaseCallback):
    """Counts over a window of time, then ends the training. Called once for each environment step."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._opens_at: float | None = None
        self._first: tuple[float, int, int] | None = None
        self._last = (0.0, 0, 0)

    def counts(self) -> tuple[float, int, int]:
        """Return seconds, environment steps and updates of the window."""
        assert self._first is not None
        seconds, env_steps, updates = (last - first for first, last in zip(self._first, self._last, strict=True))
        return seconds, int(env_steps), int(updates)

    def _on_step(self) -> bool:
        updates = self.model._n_updates  # type: ignore[attr-defined]  # the library has no public name for it
        now = time.monotonic()
        if updates and self._opens_at is None:
            self._opens_at = now + SETTLE_S
        self._last = (now, self.num_timesteps, updates)
        if self._first is None and self._opens_at is not None and now >= self._opens_at:
            self._first = self._last
        return self._first is None or now < self._first[0] + self._seconds


def main() -> None:
    """Train for the window, and write what was counted."""
    arguments = parse_arguments()
    model = SAC("MlpPolicy", gym.make(arguments.env), seed=arguments.seed, device=arguments.device)
    window = Window(arguments.seconds)
    model.learn(NO_STEP_LIMIT, callback=window)
    seconds, env_steps, updates = window.counts()
    report = {
        "version": version("stable-baselines3"),
        "device": str(model.device),
        "batch_size": model.batch_size,
        "torch_threads": torch.get_num_threads(),
        "window_s": round(seconds, 3),
        "env_steps": env_steps,
        "updates": updates,
        "sampling_hz": env_steps / seconds,
        "update_hz": updates / seconds,
    }
    arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure the throughput of Stable-Baselines3's SAC.")
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of the window")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, required=True, help="write the result here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
