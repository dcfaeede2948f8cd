"""The core that the sampler of a real robot has to itself: the last one, of two or more that this run may use."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from spreeze.host.priority import run_first


def allowed_cores() -> list[int]:
    """Return the cores that this thread may use, where the system says that."""
    return sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []


def cores_of_others(cores: list[int]) -> list[int]:
    """Return the cores of all others than the sampler; it shares one with them where there is only one."""
    return cores[:-1] or cores


def take_own_core(urgency: int) -> None:
    """Let this thread have that core, before all less urgent ones. What it has started before may use all cores."""
    cores = allowed_cores()
    with contextlib.suppress(OSError):
        if len(cores) > 1:
            os.sched_setaffinity(0, cores[-1:])
    run_first(len(cores) > 1, urgency)


@contextlib.contextmanager
def leaving_a_core(is_realtime: bool) -> Iterator[None]:
    """Keep this thread, and what it starts, off that core."""
    cores = allowed_cores()
    if not is_realtime or len(cores) < 2:
        yield
        return
    os.sched_setaffinity(0, cores_of_others(cores))
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
