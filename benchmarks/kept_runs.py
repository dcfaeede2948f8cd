"""A JSON file of runs that grows by a run at a time, in as many parts as it takes.

In: the settings of a benchmark and its command line. Out: the runs that are there already, the file with each new
one, and when a part is over.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from session import describe_session, write_json
from spreeze.errors import ConfigError
from spreeze.views.picture_formats import require_drawable

PART = ("date", "git_commit", "git_dirty", "command")


class KeptRuns:
    """The runs of one benchmark with the same settings on the same machine, in a file if one is named."""

    def __init__(
        self,
        benchmark: str,
        settings: dict[str, Any],
        path: Path | None,
        part_s: float | None = None,
        grows: Sequence[str] = (),
    ) -> None:
        """grows: the settings that may differ between parts; of lists all values are kept, of numbers the highest."""
        self._path, self._part_s = path, part_s
        self._began_at = self._last_at = time.monotonic()
        self._longest_s = 0.0
        # As JSON has them: a tuple is a list there.
        self.content: dict[str, Any] = describe_session(benchmark, json.loads(json.dumps(settings)))
        part = {name: self.content[name] for name in PART}
        self.content |= {"parts": [part], "runs": []}
        if path is not None and path.exists():
            self._go_on_with(path, grows)

    @property
    def runs(self) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = self.content["runs"]
        return runs

    def has(self, **key: Any) -> bool:
        return any(all(run.get(name) == value for name, value in key.items()) for run in self.runs)

    def add(self, run: dict[str, Any]) -> None:
        """Keep a run; the file is whole at every moment."""
        now = time.monotonic()
        self._longest_s, self._last_at = max(self._longest_s, now - self._last_at), now
        self.runs.append(run)
        write_json(self._path, self.content)

    def is_part_over(self) -> bool:
        """Say whether another run, as long as the longest of this part, would end too late. One is always made."""
        return self._part_s is not None and time.monotonic() + self._longest_s > self._began_at + self._part_s

    def _go_on_with(self, path: Path, grows: Sequence[str]) -> None:
        kept, now = read_kept(path), self.content
        ignored = (*grows, "memory_bytes")  # virtual machines of one kind differ by a few pages of memory
        for name in ("benchmark", "settings", "machine"):
            if _without(kept.get(name), ignored) != _without(now[name], ignored):
                refuse(f"--json {path} differs in its {name}: name another file, or repeat its command")
        settings = {name: _grown(kept["settings"][name], now["settings"][name]) for name in grows}
        parts = kept.get("parts") or [{name: kept.get(name) for name in PART}]
        self.content = {**kept, "settings": {**now["settings"], **settings}, "parts": [*parts, *now["parts"]]}


def read_kept(path: Path) -> dict[str, Any]:
    """Read a file of runs, or say in one line why it is none."""
    try:
        kept: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        refuse(f"{path} cannot be read, {error}: name another file")
    if not isinstance(kept, dict) or not isinstance(kept.get("runs"), list):
        refuse(f"{path} holds no runs: name another file")
    return kept


def _without(described: Any, names: Sequence[str]) -> Any:
    return {k: v for k, v in described.items() if k not in names} if isinstance(described, dict) else described


def _grown(before: Any, now: Any) -> Any:
    return list(dict.fromkeys([*before, *now])) if isinstance(now, list) else max(before, now)


def add_flags(parser: argparse.ArgumentParser) -> None:
    json_help = "write every run to this file; runs of the same settings that it holds are not repeated"
    parser.add_argument("--json", type=Path, help=json_help)
    parser.add_argument("--picture", type=Path, help="draw what was measured: .png, .svg or .pdf")
    part_help = "begin no run that would end later; the same command with the same --json goes on from there"
    parser.add_argument("--part-seconds", type=float, help=part_help)


def check_flags(arguments: argparse.Namespace) -> None:
    """Refuse what cannot be written before anything is measured."""
    for flag, path in (("--json", arguments.json), ("--picture", arguments.picture)):
        require(path is None or path.absolute().parent.is_dir(), f"{flag} {path}: there is no such folder")
    if arguments.picture is not None:
        try:
            require_drawable(arguments.picture, "--picture")
        except ConfigError as error:
            refuse(str(error))
    require(arguments.part_seconds is None or arguments.part_seconds > 0, "--part-seconds must be above 0")


def require(condition: bool, message: str) -> None:
    if not condition:
        refuse(message)


def refuse(message: str) -> NoReturn:
    """End with one line and the exit code of wrong input."""
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    sys.exit(2)
