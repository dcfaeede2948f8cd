"""How long a process and all that it has started have been on cores, and have waited for one."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import NamedTuple

import psutil


class ProcessTimes(NamedTuple):
    """Sums since each process was started; differences of two are what counts."""

    wall_s: float
    cpu_s: float
    queued_s: float
    """Ready to compute, while other processes had the cores (Linux; elsewhere 0)."""
    resident_bytes: int

    def since(self, before: ProcessTimes) -> ProcessTimes:
        """Return the difference to an earlier reading."""
        return ProcessTimes(
            self.wall_s - before.wall_s,
            self.cpu_s - before.cpu_s,
            self.queued_s - before.queued_s,
            self.resident_bytes - before.resident_bytes,
        )


def read_process_times() -> ProcessTimes:
    """Read those of the calling thread's process, with all processes that it has started."""
    cpu_s = time.process_time()  # finer than the ticks in which other processes can be read
    own = psutil.Process()
    with contextlib.suppress(psutil.Error):
        ended = own.cpu_times()
        cpu_s += ended.children_user + ended.children_system
    queued_s = _queued_s(Path("/proc/thread-self/schedstat"))
    resident = own.memory_info().rss
    for child in own.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = child.cpu_times()
            cpu_s += times.user + times.system + times.children_user + times.children_system
            queued_s += _queued_s(Path(f"/proc/{child.pid}/schedstat"))
            resident += child.memory_info().rss
    return ProcessTimes(time.perf_counter(), cpu_s, queued_s, resident)


def _queued_s(schedstat: Path) -> float:
    try:
        return int(schedstat.read_bytes().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):  # another system, or a process that has ended
        return 0.0
