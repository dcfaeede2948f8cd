"""Keeps the logs of a run's processes from filling the disk: an environment may print at every step.

Processes open their logs for appending, so that a log can be cut while they write to it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from spreeze.host.own_files import list_own, open_own

STDERR = 2
MAX_LOG_BYTES = 16 << 20
MAX_LINE_BYTES = 400  # of what is shown in one line of ours
KEPT_BYTES = 1 << 20  # of the beginning, where libraries report what is missing, and of the end, with the failure


# How a disk refuses: full, over its quota, read-only, failing, gone. The refusal of a link has another number.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO, errno.ESTALE, errno.ENOENT)


class _Forgiving(io.FileIO):
    """A file on a disk that may be full, or a pipe or terminal that may be closed: what it refuses is lost."""

    failure: OSError | None = None
    """Why it has refused something, first."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            self.failure = self.failure or error
            return len(memoryview(data).cast("B"))


def print_forgivingly() -> Callable[[], OSError | None]:
    """Let this process continue when nobody takes what it prints; return a function that undoes it.

    A full disk, a reader that has gone as `| head` does, or a closed terminal must not end a run: the run folder has
    all that is printed. The function returns why standard output has lost something, if it has, unless its reader has
    gone, who wants no more.
    """
    before = sys.stdout, sys.stderr
    files = _forgiving_file(sys.stdout), _forgiving_file(sys.stderr)
    sys.stdout, sys.stderr = map(_text_on, files, before)

    def undo() -> OSError | None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before
        failure = None if files[0] is None else files[0].failure
        return None if isinstance(failure, BrokenPipeError) else failure

    return undo


def fill_standard_descriptors() -> None:
    """Open what a shell has closed (`>&-`): else the next file gets its number, and what is printed goes there."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        pass
    os.close(fd)
    for name, number in (("stdout", 1), ("stderr", STDERR)):
        if getattr(sys, name) is None:
            setattr(sys, name, io.TextIOWrapper(io.FileIO(number, "w", closefd=False)))  # for the life of the process


def _forgiving_file(stream: TextIO) -> _Forgiving | None:
    try:
        fd = stream.fileno()
        os.fstat(fd)
    except (OSError, ValueError, AttributeError):
        return None  # a notebook's, which is not a file
    with contextlib.suppress(OSError):
        stream.flush()
    return _Forgiving(fd, "w", closefd=False)


def _text_on(file: _Forgiving | None, stream: TextIO) -> TextIO:
    """Return what prints to a file as a stream does, or the stream where there is none."""
    if file is None:
        return stream
    is_by_line = stream is sys.stderr or bool(getattr(stream, "line_buffering", False))  # as on a terminal
    return io.TextIOWrapper(io.BufferedWriter(file), stream.encoding, "backslashreplace", line_buffering=is_by_line)


def open_log(path: Path) -> int:
    """Open a log in a run folder's `logs/` for appending; return its descriptor.

    Where the disk refuses one, the process whose log it is does without: the run needs it more than its output.
    """
    try:
        return _open(path, os.O_WRONLY | os.O_CREAT)
    except OSError as error:
        if error.errno not in _DISK_ERRORS:
            raise
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _open(path: Path, flags: int) -> int:
    return open_own(path, path.parent.parent, flags | os.O_APPEND)


def last_line(path: Path) -> str:
    """Return the last line of a log in a run folder's `logs/` that is not blank, or nothing."""
    try:
        with os.fdopen(_open(path, os.O_RDONLY), "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - MAX_LINE_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def trim_logs(folder: Path) -> None:
    """Shorten every log in a folder that is too long to its beginning and end. One that cannot be cut is left."""
    with contextlib.suppress(OSError):  # the folder may be gone; a read-only disk takes no more output either
        for log in list_own(folder, folder.parent, "*.log"):
            if log.lstat().st_size > MAX_LOG_BYTES:
                with contextlib.suppress(OSError):
                    _trim(log)


def _trim(log: Path) -> None:
    fd = _open(log, os.O_RDWR)
    try:
        size = os.fstat(fd).st_size
        end = os.pread(fd, KEPT_BYTES, size - KEPT_BYTES)
        # Cut first, then write: on a full disk there is room only then. Output in between comes before the end.
        os.ftruncate(fd, KEPT_BYTES)
        os.write(fd, b"\n[%d bytes were cut out here]\n" % (size - 2 * KEPT_BYTES) + end)
    finally:
        os.close(fd)
