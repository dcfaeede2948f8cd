"""What commands share: the list of them, and the moment at which this one was started."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path


def overview(usage: str, commands: Mapping[str, Callable[[list[str]], int]]) -> str:
    """Return what a command prints that has commands of its own."""
    width = max(map(len, commands))
    lines = [f"  {name:<{width}}  {str(command.__doc__).strip()}" for name, command in commands.items()]
    return "\n".join([f"usage: {usage} ...", "", *lines, "", f"`{usage} --help` lists what it takes."])


def command_started_at() -> float:
    """Return when this process started, on the clock of time.monotonic(): the user's clock, imports included."""
    try:
        # Field 22 of stat, counted in ticks since boot; the command's own name before it may hold spaces.
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):
        import psutil  # elsewhere than Linux; there it is off by up to a second

        age_s = time.time() - psutil.Process().create_time()
    return time.monotonic() - max(0.0, age_s)
