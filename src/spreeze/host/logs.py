"""Keeps the logs of a run's processes from filling the disk: an environment may print at every step.

Processes append to their logs whatever their size is, so that a log may be cut while they write to it.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

MAX_LOG_BYTES = 16 << 20
KEPT_BYTES = 1 << 20  # of the beginning, where libraries say what they miss, and of the end, where things went wrong


class _Forgiving(io.FileIO):
    """A file that a full disk may keep from being written: what is printed then is lost, and nobody raises."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError:
            return len(memoryview(data).cast("B"))


def print_forgivingly() -> Callable[[], None]:
    """Let this process go on when the files that it prints to cannot be written; return what undoes that.

    An environment that prints is no reason to end, nor is a display whose output somebody has sent to a file.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _forgiving(sys.stdout), _forgiving(sys.stderr)

    def undo() -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before

    return undo


def _forgiving(stream: TextIO) -> TextIO:
    try:
        fd = stream.fileno()
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return stream  # a terminal; or a pipe, whose end is for its writer to know
    except (OSError, ValueError, AttributeError):
        return stream  # a notebook's, which is no file
    stream.flush()
    log = io.BufferedWriter(_Forgiving(fd, "w", closefd=False))
    return io.TextIOWrapper(log, stream.encoding, "backslashreplace", line_buffering=stream is sys.stderr)


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
