"""Reads run folders from outside: of runs that are running, have ended, were killed or are damaged.

In: the files that `run_folder` writes, in whatever condition. Out: lines and states. No content of a file raises an
exception, and the number of lines in memory is bounded.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from spreeze.host.files import open_regular, read_bounded, read_tail
from spreeze.runs.run_folder import Journal

MAX_LINE_BYTES = 1 << 20  # lines have a few KB; a longer one is damaged
CHUNK_BYTES = 1 << 22  # read at once: a huge file is read in several turns, none of which takes long
MAX_FILE_BYTES = 1 << 22  # of config.json and summary.json, which have a few KB
TAIL_BYTES = 1 << 18  # where the newest line is looked for
MAX_LINES = 4096  # more points than a chart has pixels
RECENT_LINES = 64  # all of them are kept, for figures over the last seconds
# Of the text of all kept lines, and of one recent line: parsed, they take ten times as much memory.
MAX_KEPT_BYTES, MAX_RECENT_BYTES = 1 << 24, 1 << 16
MAX_DRAWN = 1e100  # beyond it, differences and quantiles overflow, in NumPy, in matplotlib and in a browser
MAX_NUMBER = 2**63  # larger integers count as missing: figures are drawn as floats, whose range is bounded
SILENT_S = 10.0  # a run writes one line per second; one that has written none for so long is not running

State = Literal["starting", "running", "finished", "failed", "silent", "gone"]


class JournalReader:
    """Follows a journal: every call returns the complete lines written since the last call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset, self._inode, self._partial = 0, 0, b""
        self._skips = False
        self.damaged_lines = 0
        self.restarts = 0
        """How often the file was replaced or became shorter, and was read from its beginning again."""

    def sized_lines(self) -> list[tuple[dict[str, Any], int]]:
        """Return new lines with their sizes in bytes, oldest first, at most CHUNK_BYTES; none if there is no file."""
        try:
            with open_regular(self._path, self._path.parent) as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._offset:  # thinned out, or created again
                    self.restarts += self._inode != 0
                    self._offset, self._inode, self._partial, self._skips = 0, status.st_ino, b"", False
                    self.damaged_lines = 0
                file.seek(self._offset)
                chunk = file.read(CHUNK_BYTES)
        except OSError:
            return []
        self._offset += len(chunk)
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        if self._skips and lines:  # the end of a line that was too long
            lines, self._skips = lines[1:], False
        if len(self._partial) > MAX_LINE_BYTES:
            self.damaged_lines += not self._skips
            self._partial, self._skips = b"", True
        return [(line, len(text)) for text in lines if (line := self._parse(text)) is not None]

    def _parse(self, text: bytes) -> dict[str, Any] | None:
        if not text.strip():
            return None
        line = _parse_object(text) if len(text) <= MAX_LINE_BYTES else None
        self.damaged_lines += line is None
        return line


class JournalLines:
    """The lines of a journal, of which a bounded number is kept: with too many, every other one is dropped."""

    def __init__(self, max_lines: int = MAX_LINES) -> None:
        self._max_lines, self._stride, self._count = max_lines, 1, 0
        self._kept: list[dict[str, Any]] = []
        self._sizes: list[int] = []
        self._kept_bytes = 0
        self.newest: dict[str, Any] | None = None
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT_LINES)

    def add(self, line: dict[str, Any], byte_count: int = 0) -> None:
        """Add the next line. byte_count: of its text."""
        # Every parsed line has its own copies of the field names, which would take half of the memory.
        line = {sys.intern(name): value for name, value in line.items()}
        self.newest = line
        if byte_count <= MAX_RECENT_BYTES:
            self.recent.append(line)
        if self._count % self._stride == 0:
            self._kept.append(line)
            self._sizes.append(byte_count)
            self._kept_bytes += byte_count
            if len(self._kept) > self._max_lines or self._kept_bytes > MAX_KEPT_BYTES:
                self._kept, self._sizes = self._kept[::2], self._sizes[::2]
                self._kept_bytes = sum(self._sizes)
                self._stride *= 2
        self._count += 1

    def clear(self) -> None:
        """Forget all lines: their journal is read from its beginning again."""
        self._stride, self._count, self._kept_bytes = 1, 0, 0
        self._kept, self._sizes, self.newest = [], [], None
        self.recent.clear()

    def __len__(self) -> int:
        return self._count

    def series(self, x: str, y: str) -> list[tuple[float, float]]:
        """Return two fields of the lines that have both as numbers that can be drawn, the newest line included."""
        lines = self._kept
        if self.newest is not None and lines[-1] is not self.newest:
            lines = [*lines, self.newest]
        return [
            (float(line[x]), float(line[y])) for line in lines if _is_number(line.get(x)) and _is_number(line.get(y))
        ]

    def all(self) -> list[dict[str, Any]]:
        """Return the lines that are kept."""
        return self._kept


class RunReader:
    """A run folder as it was at the last `refresh`."""

    def __init__(self, path: Path, now: Callable[[], float] = time.time, max_lines: int = MAX_LINES) -> None:
        self.path, self._now = path, now
        self.metrics, self.evaluations, self.events = JournalLines(max_lines), JournalLines(max_lines), JournalLines()
        self.config: dict[str, Any] = {}
        self.summary: dict[str, Any] = {}
        of_journal: dict[Journal, JournalLines] = {
            "metrics": self.metrics,
            "evaluations": self.evaluations,
            "events": self.events,
        }
        self._journals = [(JournalReader(path / f"{journal}.jsonl"), lines) for journal, lines in of_journal.items()]

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.path.absolute().name

    @property
    def damaged_lines(self) -> int:
        """Number of lines of its journals that could not be read."""
        return sum(reader.damaged_lines for reader, _ in self._journals)

    @property
    def state(self) -> State:
        """What the run does, as far as its folder shows."""
        if not self.path.is_dir():
            return "gone"
        if self.summary:
            return "failed" if self.summary.get("stop_reason") == "failed" else "finished"
        written_at = max((_written_at(self.path / name) for name in ("metrics.jsonl", "config.json")), default=0.0)
        if written_at and self._now() - written_at > SILENT_S:
            return "silent"
        return "running" if len(self.metrics) else "starting"

    @property
    def failure(self) -> str | None:
        """Why it failed, in one line."""
        errors = [event for event in self.events.all() if event.get("kind") == "error"]
        return str(errors[-1].get("reason")) if errors else None

    def refresh(self) -> None:
        """Read what was written since the last call."""
        if not self.config:
            self.config = read_object(self.path / "config.json", self.path) or {}
        for reader, lines in self._journals:
            restarts, new = reader.restarts, reader.sized_lines()
            if reader.restarts != restarts:
                lines.clear()
            for line, byte_count in new:
                lines.add(line, byte_count)
        self.summary = read_object(self.path / "summary.json", self.path) or {}


def read_object(path: Path, run: Path) -> dict[str, Any] | None:
    """Read a file of a run with one JSON object; None if it is not there, a link, too large or not one."""
    try:
        return _parse_object(read_bounded(path, MAX_FILE_BYTES, run))
    except OSError:
        return None


def newest_line(journal: Path) -> dict[str, Any] | None:
    """Return the newest line that is whole, if the end of a journal has one. The others take no memory."""
    try:
        texts = read_tail(journal, TAIL_BYTES, journal.parent).split(b"\n")
    except OSError:
        return None
    return next((line for text in reversed(texts) if (line := _parse_object(text)) is not None), None)


def _parse_object(text: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(text, parse_int=_whole_number)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_DRAWN


def _whole_number(text: str) -> int | None:
    value = int(text)
    return value if abs(value) < MAX_NUMBER else None


def _written_at(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0
