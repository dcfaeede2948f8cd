"""Which runs there are, and one reader for each run that a page shows.

In: run folders. Out: views. Pages name a run by an id, never by a path, so that no other folder can be requested. One
task refreshes the shown runs once per second, for all pages; without an open page it does nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spreeze.errors import RunFolderError
from spreeze.host.own_files import stat_own
from spreeze.runs.journal_reader import RunReader, read_object
from spreeze.views.amounts import number
from spreeze.views.dashboard.formatting import duration, score
from spreeze.views.dashboard.run_view import RunView

MAX_LINES = 1200  # of each journal; 3,600 lines of 10 runs would be 250 MB otherwise
MAX_READERS = 24  # those shown last stay open
# Of 4 MB each, per refresh: an hour is read at once, and a huge file does not delay the next refresh.
MAX_TURNS = 8
SCAN_S = 5.0  # how often to look for new runs
MAX_RUNS = 500  # in the list


@dataclass(frozen=True)
class RunEntry:
    """A run in the list."""

    run_id: str
    name: str
    detail: str
    """Environment, algorithm, seed and result."""

    @property
    def label(self) -> str:
        """Two lines; where there is room for one, only the name is visible."""
        return f"{self.name}\n{self.detail}"


class OpenRun:
    """A run that a page shows, with its reader."""

    def __init__(self, path: Path, viewer: Callable[[], str]) -> None:
        self.reader = RunReader(path, max_lines=MAX_LINES)
        self._viewer = viewer
        self._shown: tuple[object, ...] = ()
        self.view = RunView(self.reader, viewer())

    def refresh(self) -> None:
        """Read what is new. The view stays the same object until something has changed."""
        reader = self.reader
        for _ in range(MAX_TURNS):
            before = len(reader.metrics)
            reader.refresh()
            if (
                0 <= len(reader.metrics) - before < MAX_LINES
            ):  # fewer than before: it was read from its beginning again
                break
        viewer = self._viewer()
        counts = (len(reader.metrics), len(reader.evaluations), len(reader.events), reader.damaged_lines)
        shown = (*counts, reader.state, bool(reader.config), bool(reader.summary), viewer)
        if shown != self._shown:
            self._shown, self.view = shown, RunView(reader, viewer)


class Runs:
    """All runs that can be shown."""

    def __init__(
        self, roots: Sequence[Path], viewer: Callable[[], str] = lambda: "", certain: Path | None = None
    ) -> None:
        """roots: run folders, or folders of them. certain: a run that is listed even if its folder is still empty."""
        self._roots, self._viewer = tuple(roots), viewer
        self._paths: dict[str, Path] = {} if certain is None else {id_of(certain): certain}  # by id, newest first
        self._entries: dict[str, RunEntry] = {}
        self._open: dict[str, OpenRun] = {}  # used last comes last
        self._reading = asyncio.Lock()
        self._scanned_at = float("-inf")
        self.scan()

    @property
    def entries(self) -> list[RunEntry]:
        """The list, newest first."""
        return list(self._entries.values())

    def entry(self, run_id: str) -> RunEntry:
        """Return a run's place in the list."""
        return self._entries[run_id]

    def known(self, run_id: str | None) -> str | None:
        """Return the id if there is such a run, or else that of the newest."""
        return run_id if run_id in self._paths else next(iter(self._paths), None)

    def scan(self) -> None:
        """Look for runs. Known runs stay in the list, even if their folder is gone."""
        found = {id_of(path): path for path in find_runs(self._roots)}
        self._paths = {**found, **{run_id: path for run_id, path in self._paths.items() if run_id not in found}}
        self._entries = {run_id: _describe(run_id, path) for run_id, path in self._paths.items()}
        self._scanned_at = time.monotonic()

    @contextlib.asynccontextmanager
    async def fresh(self, run_ids: Iterable[str] = ()) -> AsyncIterator[None]:
        """Refresh runs, and keep them unchanged within the block."""
        known = [run_id for run_id in run_ids if run_id in self._paths]
        # Readers are refreshed in a thread, so that the event loop, where pages use them, does not wait for the disk.
        async with self._reading:
            if known:
                await asyncio.to_thread(self._refresh, known)
            yield

    def _refresh(self, run_ids: list[str]) -> None:
        for run_id in run_ids:
            self.run(run_id).refresh()
        if time.monotonic() - self._scanned_at > SCAN_S:
            self.scan()
        while len(self._open) > max(MAX_READERS, len(run_ids)):
            del self._open[next(iter(self._open))]

    def run(self, run_id: str) -> OpenRun:
        """Return a run; opens it if necessary."""
        run = self._open.pop(run_id, None) or OpenRun(self._paths[run_id], self._viewer)
        self._open[run_id] = run
        return run

    def config(self, run_id: str) -> dict[str, Any]:
        """Return the config of a run that is open."""
        return self.run(run_id).reader.config


def id_of(path: Path) -> str:
    """Return the id of a run: the same after a restart, and not a path."""
    return hashlib.sha256(str(path.absolute()).encode(errors="surrogateescape")).hexdigest()[:12]


def find_runs(roots: Sequence[Path]) -> list[Path]:
    """Return the run folders among the roots and right below them, newest first."""
    found: dict[Path, float] = {}
    for root in roots:
        for path in (root, *_folders_in(root, may_be_links=not os.path.lexists(root / "config.json"))):
            if (started_at := _started_at(path)) is not None:
                found[path.absolute()] = started_at
    return sorted(found, key=lambda path: (-found[path], path.name))[:MAX_RUNS]


def require_runs(roots: Sequence[Path]) -> None:
    """Raise RunFolderError if a root holds no run."""
    for root in roots:
        if not root.is_dir():
            raise RunFolderError(f"'{root}' is not a run folder: there is no such folder")
        if not find_runs([root]):
            raise RunFolderError(f"'{root}' is not a run folder, and holds none: there is no {root / 'config.json'}")


def _folders_in(root: Path, may_be_links: bool) -> list[Path]:
    # A link among run folders is the user's, such as runs/latest; one in a run folder may be a stranger's.
    try:
        return [path for path in root.iterdir() if path.is_dir() and (may_be_links or not path.is_symlink())]
    except OSError:
        return []


def _started_at(path: Path) -> float | None:
    # config.json is written once, at the start.
    try:
        return stat_own(path / "config.json", path).st_mtime
    except OSError:
        return None


def _describe(run_id: str, path: Path) -> RunEntry:
    config, summary = (read_object(path / name, path) or {} for name in ("config.json", "summary.json"))
    parts = [str(config[name]) for name in ("env", "algo") if name in config]
    if "seed" in config:
        parts.append(f"seed {config['seed']}")
    if (best := number(summary, "best_return")) is not None:
        parts.append(f"best {score(best)}")
    if (wall_s := number(summary, "wall_s")) is not None:
        parts.append(duration(wall_s))
    return RunEntry(run_id, path.name, " · ".join(parts)[:200])
