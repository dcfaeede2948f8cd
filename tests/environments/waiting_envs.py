"""Environments that wait for something: a clock, with or without the interpreter's lock, or what the test decides."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

# Keeps the interpreter's lock while it sleeps, as many bindings of simulators do.
_LOCKING_LIBRARY = ctypes.PyDLL(None)


class Walk(gymnasium.Env[Any, Any]):
    """A random walk that follows from its seed and its actions; its episodes end by chance, or after a limit."""

    def __init__(
        self,
        step_s: float = 0.0,
        reset_s: float = 0.0,
        keeps_lock: bool = False,
        ends: float = 0.0,
        noise: float = 0.1,
    ) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = spaces.Box(-2.0, 2.0, (2,), np.float32)
        self._step_s, self._reset_s, self._keeps_lock, self._ends = step_s, reset_s, keeps_lock, ends
        self._noise = noise
        self._at = np.zeros(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._wait(self._reset_s)
        self._at = self.np_random.standard_normal(3)
        return self._at.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._wait(self._step_s)
        self._at += self._noise * self.np_random.standard_normal(3)
        self._at[:2] += action
        ends = self.np_random.random() < self._ends
        return self._at.astype(np.float32), float(self._at.sum()), ends, False, {}

    def _wait(self, seconds: float) -> None:
        if self._keeps_lock:
            _LOCKING_LIBRARY.usleep(int(1e6 * seconds))
        elif seconds:
            time.sleep(seconds)


class Gated(gymnasium.Env[Any, Any]):
    """Its calls return when the test lets them; it notes what is done with it, and in which thread."""

    made: ClassVar[list[Gated]] = []

    def __init__(self, raises: str = "") -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.gate, self.raises, self.closed = threading.Semaphore(0), raises, 0
        self.is_open, self.steps, self.is_in_step = False, 0, threading.Event()
        self.threads = {threading.get_ident()}
        Gated.made.append(self)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.threads.add(threading.get_ident())
        self._pass()
        self._raise("reset")
        return np.zeros(1, np.float32), {}

    def step(self, _action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.threads.add(threading.get_ident())
        self.is_in_step.set()
        self._pass()
        self._raise("step")
        self.steps += 1
        return np.full(1, self.steps, np.float32), 1.0, False, False, {}

    def close(self) -> None:
        self.closed += 1
        self.open()

    def open(self) -> None:
        """Let all calls pass from now on."""
        self.is_open = True
        self.gate.release()

    def _pass(self) -> None:
        if not self.is_open:
            self.gate.acquire()

    def _raise(self, where: str) -> None:
        if self.raises == where:
            raise ZeroDivisionError("the wheel fell off")
