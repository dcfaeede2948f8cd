"""Appends complete lines to a journal, also on a disk that is full at times.

Lines that cannot be written wait in memory, up to a limit, and are written when there is room again. A line that was
written in part is cut off before the next one. A journal with a limit of its size is thinned out.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from spreeze.host.files import aside_of, open_regular
from spreeze.host.own_files import create_own, open_own, remove_own, replace_own, stat_own

_BLOCK_BYTES = 1 << 16
_TIME = re.compile(rb'"wall_s": (\d+(?:\.\d+)?)')


class JournalWriter:
    """The writer's end of one journal."""

    def __init__(self, path: Path, most_waiting_bytes: int, most_bytes: int | None = None) -> None:
        """most_bytes: above this size the older half of the file loses about every second line."""
        self._path, self._root = path, path.parent
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes, self._most_waiting_bytes = 0, most_waiting_bytes
        self._most_bytes = self._thins_above = most_bytes
        self.lost = 0
        """Number of waiting lines that were dropped, the oldest first, because there were too many."""

    @property
    def waiting(self) -> int:
        """Number of lines that are not in the file yet."""
        return len(self._waiting)

    def add(self, line: bytes) -> None:
        """Queue a line, with its newline, for `write`."""
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        while self._waiting_bytes > self._most_waiting_bytes and len(self._waiting) > 1:
            self._drop_first()
            self.lost += 1

    def write(self) -> None:
        """Write all waiting lines. Raises OSError; lines that are not in the file then keep waiting."""
        if not self._waiting:
            return
        # Opened each time: a folder that was deleted and created again gets a new file.
        fd = open_own(self._path, self._root, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            size = cut_half_line(fd)
            while self._waiting:
                written = os.write(fd, self._waiting[0])
                if written < len(self._waiting[0]):
                    os.ftruncate(fd, size)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                size += written
                self._drop_first()
        finally:
            os.close(fd)
        if self._most_bytes is not None and self._thins_above is not None and size > self._thins_above:
            with contextlib.suppress(OSError):
                thin(self._path)
                size = stat_own(self._path, self._root).st_size
            # If it could not be made shorter, the next try comes later, and not every second.
            self._thins_above = max(self._most_bytes, size + self._most_bytes // 16)

    def _drop_first(self) -> None:
        self._waiting_bytes -= len(self._waiting.popleft())


def cut_half_line(fd: int) -> int:
    """Cut off what comes after a file's last newline, left by a failed write; return the new size."""
    size = at = os.fstat(fd).st_size
    if not size or os.pread(fd, 1, size - 1) == b"\n":
        return size
    keep = 0
    while at > 0 and not keep:
        begin = max(0, at - _BLOCK_BYTES)
        keep = begin + found + 1 if (found := os.pread(fd, at - begin, begin).rfind(b"\n")) >= 0 else 0
        at = begin
    os.ftruncate(fd, keep)
    return keep


def thin(path: Path) -> None:
    """Remove half of the lines of a journal's older half, so that the others are evenly spaced in `wall_s`.

    Not every second one: repeated, that would leave nothing of the beginning.
    """
    aside, root = aside_of(path), path.parent
    try:
        with open_regular(path, root) as old, os.fdopen(create_own(aside, root), "wb") as new:
            half = os.fstat(old.fileno()).st_size // 2
            times = [_time_of(line) for line in _lines_before(half, old)]
            distance = (max(times) - min(times)) * 2 / len(times)
            old.seek(0)
            kept_at = float("-inf")
            for line, time in zip(_lines_before(half, old), times, strict=True):
                if abs(time - kept_at) >= distance:  # abs: a resumed run may count from 0 again
                    new.write(line)
                    kept_at = time
            shutil.copyfileobj(old, new)
        replace_own(aside, path, root)
    except BaseException:
        with contextlib.suppress(OSError):
            remove_own(aside, root)
        raise


def _lines_before(half: int, file: BinaryIO) -> Iterator[bytes]:
    at = 0
    while at < half:
        yield (line := file.readline())
        at += len(line)


def _time_of(line: bytes) -> float:
    found = _TIME.search(line)
    return float(found[1]) if found else 0.0
