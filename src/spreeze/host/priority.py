"""The priority of a process when there are fewer cores than busy processes."""

from __future__ import annotations

import contextlib
import os


def lower_priority(niceness: int) -> None:
    """Let other processes have the cores first: 1 yields a little, 19 takes only what is left."""
    with contextlib.suppress(OSError):  # it may have a lower priority already
        os.setpriority(os.PRIO_PROCESS, 0, max(niceness, os.getpriority(os.PRIO_PROCESS, 0)))
