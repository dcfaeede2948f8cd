"""The run folder: what a run leaves behind, in the files and fields that users' scripts read."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from spreeze.config import Config
from spreeze.errors import ConfigError, RunFolderError

Journal = Literal["metrics", "evaluations", "events"]


class RunFolder:
    """A folder of one run. Journals are appended a line at a time; other files are written aside and renamed."""

    def __init__(self, path: Path, made: tuple[Path, ...] = ()) -> None:
        self.path = path
        self._made = made  # the folder and its parents, as far as they were not there before

    @classmethod
    def create(cls, config: Config) -> RunFolder:
        """Make the folder of a new run; refuse one that holds another run."""
        if config.output.run_dir is not None:
            path = Path(config.output.run_dir)
        else:
            name = re.sub(r"[^\w.-]+", "-", config.env).strip("-")
            path = Path("runs") / f"{name}-{config.algo}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        try:
            if path.is_file():
                raise RunFolderError(f"--run-dir {path} is a file: name a folder that is new or empty")
            if (path / "config.json").exists():
                raise RunFolderError(
                    f"--run-dir {path} already holds a run: name another folder, or delete this one to start over"
                )
            if path.exists() and any(path.iterdir()):
                raise RunFolderError(f"--run-dir {path} is not empty: name a folder that is new or empty")
            made = tuple(folder for folder in (path, *path.parents) if not folder.exists())
            for part in ("weights", "best", "logs"):
                (path / part).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(
                f"--run-dir {path} cannot be created ({error.strerror}): name a folder you may write to"
            ) from None
        return cls(path, made)

    def append(self, journal: Journal, line: Mapping[str, Any]) -> None:
        """Append a line to a journal. Opened each time: a crash leaves whole lines."""
        with (self.path / f"{journal}.jsonl").open("a") as file:
            file.write(json.dumps(_as_json(line), allow_nan=False) + "\n")

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file, whole or not at all."""
        aside = self.path / f".{name}.{os.getpid()}"
        aside.write_text(json.dumps(_as_json(content), indent=2, allow_nan=False) + "\n")
        aside.replace(self.path / name)

    def discard(self) -> None:
        """Delete what was made for a run that never began, and nothing that was there before."""
        for part in self.path.iterdir() if self.path.exists() else ():
            shutil.rmtree(part) if part.is_dir() else part.unlink()
        for folder in self._made:
            with contextlib.suppress(OSError):  # another run has moved in meanwhile
                folder.rmdir()


def read_run_config(run: Path) -> Config:
    """Read the config of an earlier run."""
    path = run / "config.json"
    if not path.is_file():
        raise RunFolderError(f"'{run}' is not a run folder: there is no {path}")
    try:
        fields = json.loads(path.read_text())
        if not isinstance(fields, dict):
            raise ValueError("it holds no settings")
        return Config(env=fields.pop("env", "")).replace(**fields)
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path} cannot be read: {error}") from None


def read_config_file(path: Path) -> dict[str, Any]:
    """Read leaf fields from a JSON file, such as the config.json of an earlier run."""
    try:
        fields = json.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"--config {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"--config {path} is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ConfigError(f"--config {path} must hold a JSON object of settings, like a run's config.json")
    return fields


def _as_json(value: Any) -> Any:
    """Replace NaN and infinities, which JSON does not have, by null."""
    if isinstance(value, Mapping):
        return {key: _as_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
