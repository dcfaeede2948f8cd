"""The clock of a real robot: each step of an episode starts at an absolute deadline.

In: steps per second. Out: waits that end at the deadlines, and how late each step has started, in shared memory.
Deadlines are absolute: a step that starts late does not delay those after it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from spreeze.channels.memory import order_stores
from spreeze.channels.metrics import KEPT_STEPS

LATE_S = 0.002
# `time.sleep` returns 0.03 to 0.1 ms too late on a core of its own; what is left is waited for without sleep. At 50
# steps per second this takes 1% of a core.
SPIN_S = 0.0002
LOOK_S = 0.05  # at most this long between two looks whether the sampler is to end


class StepClock:
    """Waits for the start of each step."""

    def __init__(
        self,
        hz: float,
        record: NDArray[Any],
        is_over: Callable[[], bool],
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """record: an array of one `metrics.CLOCK`. is_over: whether not to wait any longer."""
        self._hz, self._is_over, self._now, self._sleep = hz, is_over, now, sleep
        self._steps, self._late_steps = record["steps"], record["late_steps"]
        self._longest_s, self._lateness_s = record["longest_s"], record["lateness_s"][0]
        self._began_at: float | None = None
        self._periods = 0

    def restart(self) -> None:
        """Let the next step be the first of an episode: it starts at once, and the others follow it."""
        self._began_at = None

    def wait(self) -> bool:
        """Wait for the start of the next step; return False if there is to be none.

        If its deadline passed long ago, because the step before it took too long, it starts at the next whole one.
        """
        if self._began_at is None:
            if self._is_over():
                return False
            self._began_at, self._periods = self._now(), 0
            return True
        self._periods += 1
        due_at = start_at = self._began_at + self._periods / self._hz
        if (now := self._now()) > due_at + LATE_S:
            self._periods = math.ceil((now - self._began_at) * self._hz)
            start_at = self._began_at + self._periods / self._hz
        if not self._wait_until(start_at):
            return False
        self._count(self._now() - due_at)
        return True

    def _wait_until(self, at: float) -> bool:
        while (remaining_s := at - self._now()) > SPIN_S:
            if self._is_over():
                return False
            self._sleep(min(remaining_s - SPIN_S, LOOK_S))  # leaves the core to others until shortly before
        while self._now() < at:
            pass
        return not self._is_over()

    def _count(self, lateness_s: float) -> None:
        self._lateness_s[int(self._steps[0]) % KEPT_STEPS] = lateness_s
        self._longest_s[0] = max(float(self._longest_s[0]), lateness_s)
        self._late_steps[0] += lateness_s > LATE_S
        order_stores()
        self._steps[0] += 1  # last: whoever reads it finds the lateness of each step before
