"""What the scripts here share: a JSON file that grows by a run at a time, in as many parts as it takes.

In: the command line. Out: the runs that are there already, the file with each new one, and when a part is over.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sitting import describe_sitting, write_json
from spreeze.errors import ConfigError
from spreeze.views.pictures import require_drawable


class KeptRuns:
    """The runs of one benchmark with the same settings on the same machine, in a file if one is named."""

    def __init__(self, benchmark: str, settings: dict[str, Any], path: Path | None, part_s: float | None) -> None:
        self._path, self._part_s = path, part_s
        self._began_at = self._last_at = time.monotonic()
        self._longest_s = 0.0
        self.content: dict[str, Any] = {**describe_sitting(benchmark, settings), "runs": []}
        # As JSON has them: a tuple is a list there.
        self.content["settings"] = json.loads(json.dumps(settings))
        if path is not None and path.exists():
            self._go_on_with(path)

    @property
    def runs(self) -> list[dict[str, Any]]:
        """All runs so far."""
        runs: list[dict[str, Any]] = self.content["runs"]
        return runs

    def has(self, **key: Any) -> bool:
        """Say whether there is a run of this kind."""
        return any(all(run.get(name) == value for name, value in key.items()) for run in self.runs)

    def add(self, run: dict[str, Any]) -> None:
        """Keep a run, with the code it is of; the file is whole at every moment."""
        now = time.monotonic()
        self._longest_s, self._last_at = max(self._longest_s, now - self._last_at), now
        self.runs.append({**run, "git_commit": self.content["git_commit"], "git_dirty": self.content["git_dirty"]})
        self.save()

    def save(self) -> None:
        """Write the file, if there is one."""
        write_json(self._path, self.content)

    def is_part_over(self) -> bool:
        """Say whether another run, as long as the longest of this part, would end too late. One is always made."""
        return self._part_s is not None and time.monotonic() + self._longest_s > self._began_at + self._part_s

    def _go_on_with(self, path: Path) -> None:
        try:
            kept = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            refuse(f"--json {path} cannot be read, {error}: name another file")
        for name in ("benchmark", "settings", "machine"):
            if not isinstance(kept, dict) or _comparable(kept.get(name)) != _comparable(self.content[name]):
                refuse(f"--json {path} differs in its {name}: name another file, or repeat its command")
        self.content = {**kept, **self.content, "runs": kept["runs"]}


def _comparable(described: Any) -> Any:
    # Virtual machines of one kind differ by a few pages of memory.
    if isinstance(described, dict):
        return {name: value for name, value in described.items() if name != "memory_bytes"}
    return described


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add what all scripts take."""
    parser.add_argument(
        "--json",
        type=Path,
        help="write every run to this file; where it holds runs of the same settings, they are kept and only those "
        "that are missing are made",
    )
    parser.add_argument("--picture", type=Path, help="draw what was measured: .png, .svg or .pdf")
    parser.add_argument(
        "--part-seconds",
        type=float,
        help="begin no run that would end later than this if it took as long as the longest so far; the same "
        "command with the same --json goes on from there",
    )


def check_flags(arguments: argparse.Namespace) -> None:
    """Refuse what cannot be written before anything is measured."""
    for flag, path in (("--json", arguments.json), ("--picture", arguments.picture)):
        if path is not None and not path.absolute().parent.is_dir():
            refuse(f"{flag} {path}: there is no such folder")
    if arguments.picture is not None:
        try:
            require_drawable(arguments.picture, "--picture")
        except ConfigError as error:
            refuse(str(error))
    if arguments.part_seconds is not None and arguments.part_seconds <= 0:
        refuse("--part-seconds must be above 0")


def require(condition: bool, message: str) -> None:
    """Refuse unless the condition holds."""
    if not condition:
        refuse(message)


def refuse(message: str) -> NoReturn:
    """End with one line and the exit code of wrong input."""
    print(message, file=sys.stderr)
    sys.exit(2)
