"""Keeps the logs of a run's processes from filling the disk: an environment may print at every step.

Processes append to their logs whatever their size is, so that a log may be cut while they write to it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MAX_LOG_BYTES = 16 << 20
KEPT_BYTES = 1 << 20  # of the beginning, where libraries say what they miss, and of the end, where things went wrong


def trim_logs(folder: Path) -> None:
    """Cut every log in a folder that is too long: its beginning and its end stay. What cannot be cut is left."""
    with contextlib.suppress(OSError):  # a folder that is gone; a disk that is read-only takes no more output either
        for log in folder.glob("*.log"):
            if log.stat().st_size > MAX_LOG_BYTES:
                _trim(log)


def _trim(log: Path) -> None:
    fd = os.open(log, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        end = os.pread(fd, KEPT_BYTES, size - KEPT_BYTES)
        # First cut, then written: a full disk has room for it only then. What is printed in between comes before it.
        os.ftruncate(fd, KEPT_BYTES)
        os.write(fd, b"\n[%d bytes were cut out here]\n" % (size - 2 * KEPT_BYTES) + end)
    finally:
        os.close(fd)
