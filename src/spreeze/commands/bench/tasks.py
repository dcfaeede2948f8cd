"""The tasks of `spreeze bench solve`: environment, return that counts as solved, and time limit.

In: a TOML file with one [[task]] each. Out: tasks whose settings `spreeze train` accepts, or one clear error.
"""

from __future__ import annotations

import difflib
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spreeze.config import Config
from spreeze.config.fields import flag
from spreeze.errors import ConfigError
from spreeze.host.json_text import json_text

REQUIRED = ("env", "threshold", "limit_s")
OPTIONAL = ("name", "algo", "flags")
# Settings that the benchmark sets itself, and where they are given instead.
SET_BY_BENCHMARK: Mapping[str, str] = {
    "env": "use env of the task",
    "algo": "use algo of the task",
    "target_return": "use threshold of the task",
    "max_seconds": "use limit_s of the task",
    "seed": "use --seeds, their number",
    "run_dir": "use --runs, the folder for all runs",
    "fresh": "every run is fresh",
    "quiet": "every run is quiet",
}
EXAMPLE = '[[task]] env = "Pendulum-v1", threshold = -200, limit_s = 60, one per line'


@dataclass(frozen=True)
class Task:
    """One line of the table."""

    env: str
    threshold: float
    """Mean return of an evaluation that counts as solved."""
    limit_s: float
    name: str | None = None
    """Of a recipe, where several are tried on the same environment."""
    algo: str | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    """More settings of `spreeze train`, by their names in the config."""

    @property
    def label(self) -> str:
        """Its name in tables."""
        return self.env if self.name is None else f"{self.env} {self.name}"

    @property
    def folder(self) -> str:
        """The label, with characters that a file name may have."""
        return re.sub(r"[^\w.-]+", "-", self.label).strip("-")

    def config(self) -> Config:
        """Return the settings of its runs. Raises ConfigError for an unknown setting or a wrong value."""
        asked = {"max_seconds": self.limit_s, "target_return": self.threshold, **self.flags}
        return Config(self.env).replace(**asked, **({} if self.algo is None else {"algo": self.algo}))

    def words(self, seed: int) -> list[str]:
        """Return the arguments of `spreeze` for one run."""
        own = {} if self.algo is None else {"algo": self.algo}
        limits = {"target_return": self.threshold, "max_seconds": self.limit_s, "seed": seed, "fresh": True}
        settings = {**own, **limits, **self.flags}
        return ["train", self.env, *(word for name, value in settings.items() for word in _words(name, value))]


def read_tasks(path: Path) -> tuple[Task, ...]:
    """Read and check a tasks file."""
    try:
        content = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise ConfigError(f"--tasks {path} cannot be read: {error.strerror}") from None
    except ValueError as error:  # broken TOML, or not text
        raise ConfigError(f"--tasks {path} is not TOML: {error}") from None
    _refuse_unknown_keys(content, ("task",), f"--tasks {path}")
    entries = content.get("task", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError(f"--tasks {path}: each task begins with [[task]], in double brackets")
    if not entries:
        raise ConfigError(f"--tasks {path} holds no tasks: write {EXAMPLE}")
    tasks = tuple(_task(entry, f"--tasks {path}, task {number}") for number, entry in enumerate(entries, 1))
    _refuse_same_labels(tasks, path)
    return tasks


def _task(entry: Mapping[str, Any], where: str) -> Task:
    _refuse_unknown_keys(entry, (*REQUIRED, *OPTIONAL), where)
    missing = [key for key in REQUIRED if key not in entry]
    if missing:
        raise ConfigError(f"{where}: {missing[0]} is missing, a task needs {', '.join(REQUIRED)}")
    for key in ("env", "name", "algo"):
        if key in entry and not (isinstance(entry[key], str) and entry[key].strip()):
            raise ConfigError(f"{where}: {key} must be text in quotes, not {entry[key]!r}")
    threshold, limit_s = (_number(entry[key], key, where) for key in ("threshold", "limit_s"))
    if limit_s <= 0:
        raise ConfigError(f"{where}: limit_s must be above 0, not {entry['limit_s']}")
    flags = entry.get("flags", {})
    if not isinstance(flags, dict):
        raise ConfigError(f"{where}: flags must be settings such as {{ batch_size = 256 }}, not {flags!r}")
    for name in flags:
        if name in SET_BY_BENCHMARK:
            raise ConfigError(f"{where}: flags must not hold {name}: {SET_BY_BENCHMARK[name]}")
    task = Task(entry["env"], threshold, limit_s, entry.get("name"), entry.get("algo"), flags)
    try:
        task.config()
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    return task


def _number(value: Any, key: str, where: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # A comparison, which is false for NaN, and works for integers that are too large for a float.
    if not (is_number and abs(value) <= sys.float_info.max):
        raise ConfigError(f"{where}: {key} must be a finite number, not {value!r}")
    return float(value)


def _refuse_unknown_keys(entry: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in entry:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there is only: {', '.join(known)}"
            raise ConfigError(f"{where}: there is no key '{key}': {hint}")


def _refuse_same_labels(tasks: tuple[Task, ...], path: Path) -> None:
    seen: dict[str, int] = {}
    for number, task in enumerate(tasks, 1):
        first = seen.setdefault(task.folder, number)
        if first != number:
            raise ConfigError(
                f"--tasks {path}: tasks {first} and {number} are both called {task.label}: "
                "give one of them another name"
            )


def _words(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [flag(name) if value else flag(name).replace("--", "--no-", 1)]
    if isinstance(value, list):
        return [flag(name), *map(str, value)] if value else []
    # With "=", because a value may be negative.
    return [f"{flag(name)}={json_text(value) if isinstance(value, dict) else _plain(value)}"]


def _plain(value: Any) -> str:
    """Format 60.0 as 60."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
