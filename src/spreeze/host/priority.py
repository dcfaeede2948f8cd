"""The priority of a process when there are fewer cores than busy processes."""

from __future__ import annotations

import contextlib
import os
import sys

FIRST_NICENESS = -10


def lower_priority(niceness: int) -> None:
    """Let other processes have the cores first: 1 yields a little, 19 takes only what is left."""
    with contextlib.suppress(OSError):  # it may have a lower priority already
        os.setpriority(os.PRIO_PROCESS, 0, max(niceness, os.getpriority(os.PRIO_PROCESS, 0)))


def run_first(has_own_core: bool, urgency: int) -> None:
    """Let this thread run as soon as it has something to do, where the system allows that: mostly to root.

    has_own_core: whether no other process of ours is kept waiting. urgency: from 1 on, among such threads.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, FIRST_NICENESS)
    if sys.platform == "linux" and has_own_core:
        # 600 wake-ups on a core with another busy process: up to 3.7 ms late as usual, 0.1 ms so. What the thread
        # starts has the usual priority.
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(urgency))


def run_after(thread: int, niceness: int) -> None:
    """Let others have the cores before a thread, unless it has a lower priority already."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread, max(niceness, os.getpriority(os.PRIO_PROCESS, thread)))
