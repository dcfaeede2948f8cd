"""A JSON file of runs that grows by a run at a time, in as many parts as it takes.

In: the settings of a benchmark and its command line. Out: the runs that are there already, the file with each new
one, and when a part is over.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from flags import refuse
from session import Json, describe_session, write_json
from spreeze.errors import SpreezeError, UsageError

Measure = Callable[..., Json]
"""Makes the run of a key, which is its arguments."""
Text = Callable[[Json], str]
Draw = Callable[[Json, Path], None]
PART = ("date", "git_commit", "git_dirty", "command")


class KeptRuns:
    """The runs of one benchmark with the same settings on the same machine, in a file if one is named."""

    def __init__(
        self, name: str, settings: Json, path: Path | None, part_s: float | None = None, grows: Sequence[str] = ()
    ) -> None:
        """grows: the settings that may differ between parts; of lists all values are kept, of numbers the highest."""
        self._path, self._part_s = path, part_s
        self._began_at = self._last_at = time.monotonic()
        self._longest_s = 0.0
        # As JSON has them: a tuple is a list there.
        self.content: Json = describe_session(name, json.loads(json.dumps(settings)))
        part = {key: self.content[key] for key in PART}
        self.content |= {"parts": [part], "runs": []}
        if path is not None and path.exists():
            self._go_on_with(path, grows)

    @property
    def runs(self) -> list[Json]:
        runs: list[Json] = self.content["runs"]
        return runs

    def has(self, **key: Any) -> bool:
        """Return whether there is such a run; one that failed is tried again."""
        return any(_is_of(run, key) and run.get("failed") is None for run in self.runs)

    def fill(
        self, keys: Iterable[Json], measure: Measure, line: Text, longest_s: Callable[..., float] | None = None
    ) -> None:
        """Make the runs that are missing, in this order, with a line about each, until this part is over.

        longest_s: how long a run takes at most; if nobody can say, it is taken to be as long as the longest so far.
        """
        for key in keys:
            if self.has(**key):
                continue
            if self.is_part_over(None if longest_s is None else longest_s(**key)):
                print("this part's time is up; the same command does the rest")
                return
            self.keep(key, measure(**key))
            print(line(self.runs[-1]), flush=True)

    def keep(self, key: Json, figures: Json) -> None:
        """Keep the run of a key, in place of one that failed."""
        self.runs[:] = [run for run in self.runs if not _is_of(run, key)]
        self.add({**key, **figures})

    def add(self, run: Json) -> None:
        """Keep a run; the file is whole at every moment."""
        now = time.monotonic()
        self._longest_s, self._last_at = max(self._longest_s, now - self._last_at), now
        self.runs.append(run)
        write_json(self._path, self.content)

    @property
    def left_s(self) -> float:
        """How long this part may still take."""
        return math.inf if self._part_s is None else self._began_at + self._part_s - time.monotonic()

    def is_part_over(self, next_s: float | None = None) -> bool:
        """Return whether another run would end too late. One is always made, unless it is known to take too long."""
        next_s = self._longest_s if next_s is None else next_s
        return next_s > self.left_s

    def complete(
        self, keys: Iterable[Json], measure: Measure, line: Text, table: Text, picture: Draw, path: Path | None
    ) -> int:
        """Make the runs that are missing, print the table and draw the picture; return the exit code."""
        try:
            self.fill(keys, measure, line)
        except SpreezeError as error:
            print(error, file=sys.stderr)
            return 2 if isinstance(error, UsageError) else 1
        print(f"\n{table(self.content)}")
        if path is not None:
            picture(self.content, path)
        return 0

    def _go_on_with(self, path: Path, grows: Sequence[str]) -> None:
        kept, now = read_kept(path), self.content
        ignored = (*grows, "memory_bytes")  # virtual machines of one kind differ by a few pages of memory
        for name in ("benchmark", "settings", "machine"):
            if _without(kept.get(name), ignored) != _without(now[name], ignored):
                refuse(f"--json {path} differs in its {name}: name another file, or repeat its command")
        settings = {name: _grown(kept["settings"][name], now["settings"][name]) for name in grows}
        parts = kept.get("parts") or [{name: kept.get(name) for name in PART}]
        self.content = {**kept, "settings": {**now["settings"], **settings}, "parts": [*parts, *now["parts"]]}


def read_kept(path: Path) -> Json:
    """Read a file of runs, or say in one line why it is none."""
    try:
        kept: Json = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        refuse(f"{path} cannot be read, {error}: name another file")
    if not isinstance(kept, dict) or not isinstance(kept.get("runs"), list):
        refuse(f"{path} holds no runs: name another file")
    return kept


def _is_of(run: Json, key: Json) -> bool:
    return all(run.get(name) == value for name, value in key.items())


def _without(described: Any, names: Sequence[str]) -> Any:
    return {k: v for k, v in described.items() if k not in names} if isinstance(described, dict) else described


def _grown(before: Any, now: Any) -> Any:
    return list(dict.fromkeys([*before, *now])) if isinstance(now, list) else max(before, now)
