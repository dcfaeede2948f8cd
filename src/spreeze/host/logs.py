"""Keeps the logs of a run's processes from filling the disk: an environment may print at every step.

Processes open their logs for appending, so that a log can be cut while they write to it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from spreeze.host.own_files import list_own, open_own

STDERR = 2
MAX_LOG_BYTES = 16 << 20
MAX_LINE_BYTES = 400  # of what is shown in one line of ours
KEPT_BYTES = 1 << 20  # of the beginning, where libraries report what is missing, and of the end, with the failure
NEVER_BLOCKS_BYTES = 512  # in a pipe that has room: PIPE_BUF of POSIX

# How a disk refuses: full, over its quota, read-only, failing, gone. The refusal of a link has another number.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO, errno.ESTALE, errno.ENOENT)


class _Forgiving(io.FileIO):
    """A file on a disk that may be full, or a pipe or terminal that may be closed: what it refuses is lost.

    So is what a pipe or terminal has no room for, where its reader reads nothing for `patience_s`, as `| less` or a
    terminal after Ctrl-S: whoever waited for it could not end by a limit or a signal.
    """

    failure: OSError | None = None
    """Why it has refused something, first."""
    patience_s: float | None = None
    """None: its reader may take any time."""

    def __init__(self, fd: int) -> None:
        self._may_stall = stat.S_ISFIFO(mode := os.fstat(fd).st_mode) or stat.S_ISSOCK(mode) or os.isatty(fd)
        again = _opened_again(fd) if self._may_stall else None
        super().__init__(fd if again is None else again, "w", closefd=again is not None)
        self._most_bytes = NEVER_BLOCKS_BYTES if again is None else sys.maxsize
        self._is_stalled = False

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        try:
            while left:
                if not self._may_stall:
                    left = left[super().write(left) or 0 :]
                elif self._has_room():
                    left = left[super().write(left[: self._most_bytes]) or 0 :]
                else:
                    break
        except OSError as error:
            self.failure = self.failure or error
        return size

    def _has_room(self) -> bool:
        """Wait for room, for as long as the reader is given."""
        waiting = select.poll()
        waiting.register(self, select.POLLOUT)
        patience_s = 0.0 if self._is_stalled and self.patience_s is not None else self.patience_s
        self._is_stalled = not waiting.poll(None if patience_s is None else 1000 * patience_s)
        return not self._is_stalled


def _opened_again(fd: int) -> int | None:
    """Return a descriptor of the same pipe or terminal that does not block: this one's flags are others' too."""
    with contextlib.suppress(OSError):  # no /proc; a socket; no reader, which is for `write` to find out
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    return None


def print_forgivingly(patience_s: float | None = None) -> Callable[[], OSError | None]:
    """Let this process continue when nobody takes what it prints; return a function that undoes it.

    A full disk, a reader that has gone as `| head` does, or a closed terminal must not end a run: the run folder has
    all that is printed. Nor must a reader hold it up that reads nothing for `patience_s`, where that is given. The
    function returns why standard output has lost something, if it has, unless its reader takes no more.
    """
    before = sys.stdout, sys.stderr
    files = [_forgiving_file(stream) for stream in before]
    for file in filter(None, files):
        file.patience_s = patience_s  # of a command too that is forgiving already, up to its end
    sys.stdout, sys.stderr = map(_text_on, files, before)
    stdout = files[0]
    failure_before = None if stdout is None else stdout.failure

    def undo() -> OSError | None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before
        if stdout is None:
            return None
        failure, stdout.failure = stdout.failure, failure_before
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
    """Return a file that prints where a stream does; that of a stream which has one already."""
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    if isinstance(raw, _Forgiving):
        return raw
    try:
        fd = stream.fileno()
        os.fstat(fd)
    except (OSError, ValueError, AttributeError):
        return None  # a notebook's, which is not a file
    with contextlib.suppress(OSError):
        stream.flush()
    return _Forgiving(fd)


def _text_on(file: _Forgiving | None, stream: TextIO) -> TextIO:
    """Return what prints to a file as a stream does, or the stream where there is none or it does that."""
    if file is None or getattr(getattr(stream, "buffer", None), "raw", None) is file:
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
