"""A robot that exists once: it writes down what is done with it, and misbehaves where that is asked for."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import gymnasium
from toy_envs import EPISODE_STEPS, Point


class Robot(Point):
    """Leaves a line of its journal for each time that it is opened, reset, waited for or closed."""

    def __init__(self, folder: str, misbehaviour: str = "", at_step: int = 3) -> None:
        super().__init__()
        self._folder, self._misbehaviour, self._at_step = Path(folder), misbehaviour, at_step
        self._open = self._folder / "open"
        self._open.touch(exist_ok=False)  # a second one at the same time is an error
        self._write("open")
        if misbehaviour == "person":
            self.wait_until_ready = self._wait_until_ready

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._write("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._steps >= self._at_step:
            if self._misbehaviour == "raises":
                raise RuntimeError("a cable is loose")
            if self._misbehaviour == "hangs":
                self._write("hangs")
                while self._open.exists():  # as a read from a connection ends when that is closed
                    time.sleep(0.005)
                raise ConnectionError("closed")
        return super().step(action)

    def close(self) -> None:
        self._open.unlink()
        self._write("close")

    def _wait_until_ready(self) -> None:
        self._write("waits")
        while not (self._folder / "ready").exists():
            time.sleep(0.005)

    def _write(self, what: str) -> None:
        descriptor = os.open(self._folder / "journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, f"{what} {os.getpid()}\n".encode())
        os.close(descriptor)


gymnasium.register("Toy/Robot-v0", entry_point=Robot, max_episode_steps=EPISODE_STEPS)
