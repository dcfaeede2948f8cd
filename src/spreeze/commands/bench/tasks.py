"""The tasks of `spreeze bench solve`: what to train on, which return counts as solved, and within how many seconds.

In: a TOML file with a [[task]] each. Out: tasks whose every setting `spreeze train` would accept, or one clear error.
"""

from __future__ import annotations

import difflib
import json
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

REQUIRED = ("env", "threshold", "limit_s")
OPTIONAL = ("name", "algo", "flags")
# What the benchmark says to each run itself, and where a tasks file says it instead.
TAKEN: Mapping[str, str] = {
    "env": "env of the task says it",
    "algo": "algo of the task says it",
    "target_return": "threshold of the task says it",
    "max_seconds": "limit_s of the task says it",
    "seed": "--seeds says how many there are",
    "run_dir": "--runs says where runs are kept",
    "fresh": "every run is fresh",
    "quiet": "every run is quiet",
}
EXAMPLE = '[[task]] env = "Pendulum-v1", threshold = -200, limit_s = 60, a line each'


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
        """What the task is called in tables."""
        return self.env if self.name is None else f"{self.env} {self.name}"

    @property
    def folder(self) -> str:
        """The label, as far as it can be part of a file's name."""
        return re.sub(r"[^\w.-]+", "-", self.label).strip("-")

    def config(self) -> Config:
        """Return the settings of its runs; raise where there is no such setting, or no such value."""
        asked = {"max_seconds": self.limit_s, "target_return": self.threshold, **self.flags}
        return Config(self.env).replace(**asked, **({} if self.algo is None else {"algo": self.algo}))

    def words(self, seed: int) -> list[str]:
        """Return what follows `spreeze` on the command line of one run."""
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
    except ValueError as error:  # broken TOML, or not even text
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
            raise ConfigError(f"{where}: {key} must be a text in quotes, not {entry[key]!r}")
    threshold, limit_s = (_number(entry[key], key, where) for key in ("threshold", "limit_s"))
    if limit_s <= 0:
        raise ConfigError(f"{where}: limit_s must be above 0, not {entry['limit_s']}")
    flags = entry.get("flags", {})
    if not isinstance(flags, dict):
        raise ConfigError(f"{where}: flags must be settings such as {{ batch_size = 256 }}, not {flags!r}")
    for name in flags:
        if name in TAKEN:
            raise ConfigError(f"{where}: flags must not hold {name}: {TAKEN[name]}")
    task = Task(entry["env"], threshold, limit_s, entry.get("name"), entry.get("algo"), flags)
    try:
        task.config()
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    return task


def _number(value: Any, key: str, where: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # By comparison, which is false for NaN and holds for whole numbers that no float can hold.
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
    return [f"{flag(name)}={json.dumps(value) if isinstance(value, dict) else _plain(value)}"]


def _plain(value: Any) -> str:
    """Write 60.0 as people do: 60."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
