"""Who comes first when the cores do not suffice for all processes."""

from __future__ import annotations

import contextlib
import os


def lower_priority(niceness: int) -> None:
    """Let others have the cores first: 1 gives way a little, 19 takes what nobody else wants."""
    with contextlib.suppress(OSError):  # it may be nicer than that already
        os.setpriority(os.PRIO_PROCESS, 0, max(niceness, os.getpriority(os.PRIO_PROCESS, 0)))
