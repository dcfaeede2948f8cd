"""The one environment of a run in real time: it is closed at the end, whatever ends it, and may wait for a person.

In: the environment, and whether the sampler is to end. Out: a call of its `close`: by the sampler's own thread, or by
another one if that thread does not come back from a step, a reset or a person.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import gymnasium
from numpy.typing import NDArray

from spreeze.host.alarm import TookTooLong, raising_after

READY_METHOD = "wait_until_ready"
STEP_S = 2.0  # for the sampler's thread to come back; all of it is less than `host.lifetime.CLOSE_GRACE_S`
CLOSE_S = 5.0
LEAVE_S = 0.5  # for the sampler's thread, whose environment was closed meanwhile
LOOK_S = 0.05
# A thread that looks whether the end has come holds Python's lock for some microseconds. If it were less urgent than
# steps, and another program had the core meanwhile, a step would wait for that program: once 0.1 s, with 20 of them.
STEP_URGENCY, END_URGENCY = 1, 2

Env = gymnasium.Env[Any, Any]


class EndsBeforeReset(Exception):
    """The sampler is to end: there is no next episode."""


class Robot:
    """Knows the environment as soon as it was made, before its first reset."""

    def __init__(
        self,
        clock: NDArray[Any],
        is_dismissed: Callable[[], bool],
        beat: Callable[[], None],
        take_core: Callable[[int], None] = lambda _urgency: None,
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        """clock: an array of one `metrics.CLOCK`. beat: shows that the sampler is alive.

        take_core: called in each thread of ours once the environment was made, with all its own. leave: ends the
        process.
        """
        self._waits, self._is_dismissed = clock["waits_for_person"], is_dismissed
        self._beat, self._take_core, self._leave = beat, take_core, leave
        self._waits[0] = 0
        self._env: Env | None = None
        self._terminated = threading.Event()
        self._closing, self._closed, self._is_left = threading.Lock(), threading.Event(), threading.Event()

    def is_over(self) -> bool:
        """Return whether the sampler is to end."""
        return self._terminated.is_set() or self._is_dismissed()

    def heed_signals(self) -> None:
        """Let signals that usually end a process end the sampler in order. For the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._take_signal)

    def made(self, env: Env) -> None:
        """Close this environment at the end, from now on."""
        self._env = env
        threading.Thread(target=self._watch, name="end of the robot", daemon=True).start()
        self._take_core(STEP_URGENCY)

    def before_reset(self, env: Env) -> None:
        """Wait for a person where the environment does; this is neither a hang nor a stall."""
        if self.is_over():
            raise EndsBeforeReset
        wait = getattr(env.unwrapped, READY_METHOD, None)
        if wait is None:
            return
        self._waits[0] = 1
        try:
            wait()
        finally:
            self._beat()  # first: silence counts again from here
            self._waits[0] = 0
        if self.is_over():
            raise EndsBeforeReset

    def close(self) -> None:
        """Close the environment, once, or wait until another thread has. For the sampler's thread."""
        self._is_left.set()
        if self._env is None:
            return
        with contextlib.suppress(TookTooLong), raising_after(CLOSE_S):
            self._close_once()
        self._closed.wait(CLOSE_S)

    def _watch(self) -> None:
        self._take_core(END_URGENCY)
        while not self.is_over():
            if self._closed.wait(LOOK_S):
                return  # something was raised
        # A robot that only waits for a person is closed at once.
        if not self._waits[0]:
            self._is_left.wait(STEP_S)
        if self._is_left.is_set():
            return
        self._close_once()
        if not self._is_left.wait(LEAVE_S):
            self._leave(0)

    def _close_once(self) -> None:
        if self._env is None or not self._closing.acquire(blocking=False):
            return
        try:
            self._env.close()
        except Exception as error:  # the run ends all the same; this is for the sampler's log
            print(f"close raised {type(error).__name__}: {error}", flush=True)
        finally:
            self._closed.set()

    def _take_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._terminated.set()
