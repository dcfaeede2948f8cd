"""Keeps the logs of a run's processes from filling the disk: an environment may print at every step.

Processes open their logs for appending, so that a log can be cut while they write to it.
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

from spreeze.host.own_files import list_own, open_own

MAX_LOG_BYTES = 16 << 20
KEPT_BYTES = 1 << 20  # of the beginning, where libraries report what is missing, and of the end, with the failure


class _Forgiving(io.FileIO):
    """A file on a disk that may be full: output that cannot be written is lost, without an exception."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError:
            return len(memoryview(data).cast("B"))


def print_forgivingly() -> Callable[[], None]:
    """Let this process continue when the files that it prints to cannot be written; return a function that undoes it.

    Output of an environment, or of a display that is redirected to a file, must not end a run.
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
            return stream  # a terminal; or a pipe, whose writer has to know when it is closed
    except (OSError, ValueError, AttributeError):
        return stream  # a notebook's, which is not a file
    stream.flush()
    log = io.BufferedWriter(_Forgiving(fd, "w", closefd=False))
    return io.TextIOWrapper(log, stream.encoding, "backslashreplace", line_buffering=stream is sys.stderr)


def open_log(path: Path, flags: int = os.O_WRONLY | os.O_CREAT) -> int:
    """Open a log in a run folder's `logs/` for appending; return its descriptor."""
    return open_own(path, path.parent.parent, flags | os.O_APPEND)


def trim_logs(folder: Path) -> None:
    """Shorten every log in a folder that is too long to its beginning and end. One that cannot be cut is left."""
    with contextlib.suppress(OSError):  # the folder may be gone; a read-only disk takes no more output either
        for log in list_own(folder, folder.parent, "*.log"):
            if log.lstat().st_size > MAX_LOG_BYTES:
                with contextlib.suppress(OSError):
                    _trim(log)


def _trim(log: Path) -> None:
    fd = open_log(log, os.O_RDWR)
    try:
        size = os.fstat(fd).st_size
        end = os.pread(fd, KEPT_BYTES, size - KEPT_BYTES)
        # Cut first, then write: on a full disk there is room only then. Output in between comes before the end.
        os.ftruncate(fd, KEPT_BYTES)
        os.write(fd, b"\n[%d bytes were cut out here]\n" % (size - 2 * KEPT_BYTES) + end)
    finally:
        os.close(fd)
