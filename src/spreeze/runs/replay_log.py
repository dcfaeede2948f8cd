"""The replay on disk: the newest rows of a run, in files that are only ever appended to.

In: rows by their number, counted from the run's first. Out: extents: how many rows of which files belong to a
checkpoint. Rows that are appended later do not change an earlier checkpoint, which stays valid whatever happens to
the next one. Files that no checkpoint needs are deleted.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spreeze.errors import CheckpointError
from spreeze.host.files import open_regular
from spreeze.host.own_files import list_own, make_own_folder, open_own, remove_own, sync_own_folder

FILE_BYTES = 1 << 26  # small enough that deleting whole files keeps disk use near what the replay holds
READ_BYTES = 1 << 24
MAX_WIDTH = 1 << 22  # numbers in a row; two pictures of 640 x 480 in colours have half of that
MAX_ROW = 2**53  # rows are counted in float64 too

Rows = NDArray[np.float32]


class Extent(NamedTuple):
    """The first rows of one file."""

    first_row: int
    """The number of the file's first row; its name."""
    rows: int
    checksum: int
    """CRC-32 of these rows."""


class ReplayLog:
    """Appends to the rows of a folder.

    extents: those that the next checkpoint continues. others: those of all valid checkpoints, whose files are kept.
    Rows after them, of an unfinished checkpoint, are deleted. next_row: the first that was never appended, where the
    last extents are lost.
    """

    def __init__(
        self,
        folder: Path,
        width: int,
        extents: Iterable[Extent] = (),
        others: Iterable[Extent] = (),
        next_row: int = 0,
    ) -> None:
        self._folder, self._width, self._least_next_row = folder, width, next_row
        # Of several extents of one file, the longest.
        self._extents = list({extent.first_row: extent for extent in sorted(extents)}.values())
        self._others = list(others)
        self._file_rows = max(1, FILE_BYTES // (4 * width))
        self._not_synced: set[Path] = set()
        self._root = run_of(folder)
        make_own_folder(folder, self._root)
        kept: dict[Path, int] = {}
        for first_row, rows, _ in (*self._extents, *self._others):
            path = path_of(folder, first_row)
            kept[path] = max(rows, kept.get(path, 0))
        for path in list_own(folder, self._root, "rows-*"):
            if path not in kept:
                remove_own(path, self._root)
            else:
                self._cut(path, kept[path] * 4 * width)

    def _cut(self, path: Path, byte_count: int) -> None:
        fd = open_own(path, self._root, os.O_RDWR)
        try:
            if os.fstat(fd).st_size > byte_count:  # a shorter one must not be made longer
                os.ftruncate(fd, byte_count)
        finally:
            os.close(fd)

    def extents(self, from_row: int = 0) -> tuple[Extent, ...]:
        """Return the extents of a checkpoint that needs the rows from this one on, oldest first."""
        return tuple(extent for extent in self._extents if extent.first_row + extent.rows > from_row)

    @property
    def next_row(self) -> int:
        """The number of the row after the last."""
        return max(self._least_next_row, self._end)

    @property
    def _end(self) -> int:
        return self._extents[-1].first_row + self._extents[-1].rows if self._extents else 0

    @property
    def byte_count(self) -> int:
        """Size of the files on the disk."""
        return sum(extent.rows for extent in self._extents) * 4 * self._width

    def is_whole(self) -> bool:
        """Return whether the files still hold what was appended."""
        sizes = {path.name: path.lstat().st_size for path in list_own(self._folder, self._root, "rows-*")}
        return all(
            sizes.get(path_of(self._folder, extent.first_row).name, 0) >= extent.rows * 4 * self._width
            for extent in self._extents
        )

    def append(self, first_row: int, rows: Rows) -> None:
        """Append rows. A gap after the last one is allowed: the rows before it are too old to be needed."""
        if first_row < self.next_row:
            raise ValueError(f"row {first_row} was appended before")
        while len(rows):
            last = self._extents[-1] if self._extents else None
            is_full = last is None or first_row > self._end or last.rows >= self._file_rows
            if last is None or is_full:
                last = Extent(first_row, 0, 0)
            fitting = np.ascontiguousarray(rows[: self._file_rows - last.rows], np.float32)
            self._write(last, fitting)
            checksum = zlib.crc32(fitting.data.cast("B"), last.checksum)
            # Only now: rows that could not be written belong to no checkpoint.
            self._extents[len(self._extents) - (not is_full) :] = [
                Extent(last.first_row, last.rows + len(fitting), checksum)
            ]
            first_row, rows = first_row + len(fitting), rows[len(fitting) :]

    def _write(self, extent: Extent, rows: Rows) -> None:
        # Without "a": the next write overwrites what a failed one has left after the extent.
        path = path_of(self._folder, extent.first_row)
        self._not_synced.add(path)
        make_own_folder(path.parent, self._root)  # somebody may have deleted it
        fd = open_own(path, self._root, os.O_WRONLY | os.O_CREAT)
        try:
            offset, view = extent.rows * 4 * self._width, rows.data.cast("B")
            while view:
                written = os.pwrite(fd, view, offset)
                offset, view = offset + written, view[written:]
        finally:
            os.close(fd)

    def sync(self) -> None:
        """Wait until the appended rows and the names of their files are on the disk."""
        for path in self._not_synced:
            with open_regular(path, self._root) as file:
                os.fsync(file.fileno())
        sync_own_folder(self._folder, self._root)
        self._not_synced.clear()

    def forget(self, before_row: int) -> None:
        """Delete files of which every row is older than this one."""
        old = [extent for extent in (*self._others, *self._extents) if extent.first_row + extent.rows <= before_row]
        self._extents = [extent for extent in self._extents if extent not in old]
        self._others = [extent for extent in self._others if extent not in old]
        still_there = {extent.first_row for extent in (*self._extents, *self._others)}
        for extent in (extent for extent in old if extent.first_row not in still_there):
            path = path_of(self._folder, extent.first_row)
            self._not_synced.discard(path)
            with contextlib.suppress(FileNotFoundError):
                remove_own(path, self._root)


def run_of(folder: Path) -> Path:
    """Return the run folder of a folder of rows, its `checkpoint/replay`."""
    return folder.parent.parent


def path_of(folder: Path, first_row: int) -> Path:
    """Return the file that begins with a row."""
    return folder / f"rows-{first_row:015d}.f32"


def verify(folder: Path, extents: Iterable[Extent], width: int) -> None:
    """Read all rows of a checkpoint once. Raises CheckpointError if any is damaged."""
    for _ in read_rows(folder, extents, width):
        pass


def check_extents(extents: Sequence[Extent], width: int) -> None:
    """Raise ValueError unless extents are valid, in order and without overlap: a manifest may be forged."""
    if not 0 <= width <= MAX_WIDTH or (extents and not width):
        raise ValueError(f"rows of {width} numbers")
    for extent in extents:
        if extent.rows > max(1, FILE_BYTES // (4 * width)) or extent.first_row + extent.rows > MAX_ROW:
            raise ValueError(f"{extent.rows} rows in a file, from row {extent.first_row} on")
    if min((number for extent in extents for number in extent), default=0) < 0:
        raise ValueError("numbers below 0")
    if any(before.first_row + before.rows > after.first_row for before, after in pairwise(extents)):
        raise ValueError("extents that overlap, or are not in order")


def read_rows(folder: Path, extents: Iterable[Extent], width: int) -> Iterator[tuple[int, Rows]]:
    """Yield blocks of rows with the number of the first, oldest first. Raises CheckpointError if any is damaged."""
    extents = sorted(extents)
    try:
        check_extents(extents, width)
    except ValueError as error:
        raise CheckpointError(f"{folder} is damaged: its checkpoint says {error}") from None
    for extent in extents:
        block_rows = max(1, READ_BYTES // (4 * width))
        path, checksum = path_of(folder, extent.first_row), 0
        try:
            with open_regular(path, run_of(folder)) as file:
                if os.fstat(file.fileno()).st_size < extent.rows * 4 * width:
                    raise CheckpointError(f"{path} is shorter than its checkpoint says")
                for start in range(0, extent.rows, block_rows):
                    count = min(block_rows, extent.rows - start)
                    rows = np.fromfile(file, np.float32, count * width)
                    if len(rows) < count * width:  # it was cut meanwhile
                        raise CheckpointError(f"{path} is shorter than its checkpoint says")
                    checksum = zlib.crc32(rows.data.cast("B"), checksum)
                    yield extent.first_row + start, rows.reshape(count, width)
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read ({error.strerror})") from None
        if checksum != extent.checksum:
            raise CheckpointError(f"{path} is damaged: its checksum differs")
