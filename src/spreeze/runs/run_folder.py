"""The run folder: the files of a run, which users' scripts read too.

A disk that is full, read-only or gone does not end a run: what cannot be written waits in memory until it can be. A
folder that was deleted is created again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from spreeze.config import Config
from spreeze.config.own_settings import short_name, without_those_of_others
from spreeze.config.retired import modernise
from spreeze.errors import ConfigError, RunFolderError
from spreeze.host.files import read_bounded, reason_of, write_whole
from spreeze.host.json_text import json_file, json_text
from spreeze.host.logs import trim_logs
from spreeze.host.own_files import is_own_file, list_own, make_own_folder, open_own, remove_own, remove_own_folder
from spreeze.host.write_failures import WriteFailures
from spreeze.runs.folder_check import require_no_code, require_own_entries, require_plain_file
from spreeze.runs.journal_writer import JournalWriter, cut_half_line
from spreeze.runs.run_lock import NAME as LOCK
from spreeze.runs.run_lock import RunLock, require_unlocked

Journal = Literal["metrics", "evaluations", "events"]

PARTS = ("weights", "best", "logs")
# Limits of what waits for a disk: an hour of metrics, half a day of evaluations. They are written in this order.
WAITING_BYTES: Mapping[Journal, int] = {"events": 4 << 20, "evaluations": 16 << 20, "metrics": 4 << 20}
# Ten hours of metrics, a day of evaluations at one per second: above that the older half is thinned out.
MAX_BYTES: Mapping[Journal, int] = {"metrics": 32 << 20, "evaluations": 64 << 20}
TURN_S = 1.0  # how often logs are trimmed, and how often a failed write is tried again
MAX_CONFIG_BYTES = 1 << 22  # a config has a few KB
MAX_CONFIG_NUMBER = 2**63  # no setting has a larger integer


class RunFolder:
    """The folder of one run. Journals are appended line by line; other files are written aside and renamed.

    Its path is absolute: in a serial run, the environment may change the working directory.

    Its owner holds the folder's lock. Once the folder exists, no method raises because of the disk: `turn` returns
    warnings about it, and `close` what was lost.
    """

    def __init__(
        self,
        path: Path,
        lock: RunLock,
        made: tuple[Path, ...] = (),
        config: bytes | None = None,
        before: frozenset[Path] = frozenset(),
    ) -> None:
        self.path = path
        self._lock = lock
        self._made = made  # the folder and those of its parents that did not exist before
        self._before = before  # what was in the folder: a run that was killed at its start may have left something
        self._config = config  # as it was written last, for a folder that is created again
        self._files: dict[str, bytes] = {}  # not written yet, by name
        self._journals = {
            journal: JournalWriter(path / f"{journal}.jsonl", waiting_bytes, MAX_BYTES.get(journal))
            for journal, waiting_bytes in WAITING_BYTES.items()
        }
        self._write_failures = WriteFailures(
            f"the run folder {path}", "the run continues, and its data waits in memory"
        )
        self._refusal = ""
        self._pending_warnings: list[str] = []
        self._turned_at = time.monotonic()

    @classmethod
    def create(cls, config: Config) -> RunFolder:
        """Create and lock the folder of a new run. Refuses one that is in use or holds another run."""
        if config.output.run_dir is not None:
            path = Path(config.output.run_dir)
        else:
            env = re.sub(r"[^\w.-]+", "-", config.env).strip("-")
            name = f"{env}-{short_name(config.algo)}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
            path = Path("runs") / name
        try:
            if path.is_file():
                raise RunFolderError(f"--run-dir {path} is a file: name a folder that is new or empty")
            require_unlocked(path)
            if os.path.lexists(path / "config.json"):
                raise RunFolderError(
                    f"--run-dir {path} already holds a run: name another folder, or delete this one to start over"
                )
            absolute = path.absolute()
            before: frozenset[Path] = frozenset()
            if path.exists():
                _require_never_began(path)
                before = frozenset(_entries(absolute))
            made = tuple(folder for folder in (absolute, *absolute.parents) if not folder.exists())
            _make_parts(path)
            return cls(absolute, RunLock.take(absolute), made, before=before)
        except OSError as error:
            raise RunFolderError(
                f"--run-dir {path} cannot be created ({error.strerror}): name a folder you may write to"
            ) from None

    @classmethod
    def reopen(cls, path: Path) -> RunFolder:
        """Lock the folder of an earlier run to resume it. Where `require_run_at_rest` refuses, nothing is changed."""
        require_run_at_rest(path)
        lock: RunLock | None = None
        try:
            config = read_bounded(path / "config.json", MAX_CONFIG_BYTES, path)
            lock = RunLock.take(path.absolute())
            return cls(path.absolute(), lock, config=config)
        except OSError as error:
            raise _unusable(path, error) from None

    def repair(self) -> None:
        """Repair what an earlier session has only half written: once nothing is left that may refuse to resume it."""
        path = self.path
        try:
            _make_parts(path)
            for folder in (path, *(path / part for part in (*PARTS, "checkpoint"))):
                for left in list_own(folder, path, ".*.[0-9]*"):  # temporary files
                    if is_own_file(left, path):
                        remove_own(left, path)
            for journal in WAITING_BYTES:
                _repair(path / f"{journal}.jsonl")
        except OSError as error:
            raise _unusable(path, error) from None

    def append(self, journal: Journal, line: Mapping[str, Any]) -> None:
        """Append a line to a journal."""
        self._journals[journal].add(json_text(line).encode() + b"\n")
        self._write_all()

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file, whole or not at all."""
        self._files[name] = json_file(content)
        if name == "config.json":
            self._config = self._files[name]
        self._write_all()

    def turn(self) -> list[str]:
        """Trim logs and repeat failed writes when due; return new warnings about writing."""
        now = time.monotonic()
        if now - self._turned_at >= TURN_S:
            self._turned_at = now
            trim_logs(self.path / "logs")
            if self._write_failures.is_failing:
                self._write_all()
        pending, self._pending_warnings = self._pending_warnings, []
        return pending

    def close(self) -> str | None:
        """Release the folder; return one line about what could not be written, or None."""
        if self._files or any(journal.waiting for journal in self._journals.values()):
            self._write_all()
        self._lock.release()
        lines = sum(journal.waiting + journal.lost for journal in self._journals.values())
        missing = [*self._files, *([f"{lines} lines of its journals"] if lines else [])]
        return f"{self.path} lacks {' and '.join(missing)} ({self._refusal}): make room" if missing else None

    def discard(self) -> None:
        """Delete what was created for a run that never began, and nothing that existed before."""
        self._lock.release()
        self._files.clear()
        self._journals.clear()
        for part in (part for part in _entries(self.path) if part not in self._before):
            with contextlib.suppress(OSError):  # the disk may be why it never began
                remove_own(part, self.path) if is_own_file(part, self.path) else remove_own_folder(part, self.path)
        for folder in self._made:
            with contextlib.suppress(OSError):  # another run may use it by now
                folder.rmdir()

    def _write_all(self) -> None:
        """Write all waiting data, and keep a warning about the disk if there is a new one."""
        errors = self._try_all()
        if errors and not self._lock.is_in_place:  # the folder was deleted meanwhile
            errors = self._try_all()
        if errors:
            self._refusal = reason_of(errors[0])
        message = self._write_failures.failed(errors[0]) if errors else self._write_failures.succeeded()
        if message is not None:
            lost = sum(journal.lost for journal in self._journals.values())
            losses = f"; {lost} lines of its journals are lost" if lost and not errors else ""
            self._pending_warnings.append(message + losses)

    def _try_all(self) -> list[Exception]:
        """Write all waiting data; a failure of one file does not stop the others. Return the errors."""
        errors: list[Exception] = []
        if self._attempt(self._ensure_exists, errors):
            for name, content in list(self._files.items()):
                if self._attempt(partial(write_whole, self.path / name, content, self.path), errors):
                    del self._files[name]
            for journal in self._journals.values():
                self._attempt(journal.write, errors)
        return errors

    def _attempt(self, write: Callable[[], None], errors: list[Exception]) -> bool:
        try:
            write()
        except (OSError, RunFolderError) as error:  # RunFolderError: another run has taken a folder that was deleted
            errors.append(error)
            return False
        return True

    def _ensure_exists(self) -> None:
        """Create the folder again if it was deleted."""
        if self._lock.is_in_place:
            return
        # Other processes of the run may have created a part of it again before us.
        was_deleted = self._config is not None and not is_own_file(self.path / "config.json", self.path)
        _make_parts(self.path)
        self._lock.release()
        self._lock = RunLock.take(self.path)
        if was_deleted and self._config is not None:
            self._files.setdefault("config.json", self._config)
            self._pending_warnings.append(
                f"the run folder {self.path} was deleted: it was created again, without its previous contents"
            )


def require_run_at_rest(path: Path) -> None:
    """Raise unless a folder is a run's, in use by nobody, and holds nothing but what a run makes. Changes nothing."""
    read_run_config(path)
    require_unlocked(path)
    require_own_entries(path)


def read_run_config(run: Path) -> Config:
    """Read the config of an earlier run."""
    path = run / "config.json"
    require_plain_file(path)
    if not path.is_file():
        raise RunFolderError(f"'{run}' is not a run folder: there is no {path}")
    try:
        fields = _parse_settings(read_bounded(path, MAX_CONFIG_BYTES, run))
        config = Config.from_flat(fields)
    except (OSError, ValueError, TypeError, RecursionError, OverflowError) as error:
        raise RunFolderError(f"{path} cannot be read: {reason_of(error)}") from None
    except ConfigError as error:
        raise RunFolderError(f"{path} holds a setting that cannot be used: {reason_of(error)}") from None
    require_no_code(run, config)
    return config


def read_config_file(path: Path) -> dict[str, Any]:
    """Read leaf fields from a JSON file, such as the config.json of an earlier run."""
    try:
        with path.open("rb") as file:  # may be a pipe: the user has named it
            content = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"--config {path} cannot be read: {error.strerror}") from None
    if len(content) > MAX_CONFIG_BYTES:
        raise ConfigError(f"--config {path} is too long: it must be like a run's config.json")
    try:
        fields = json.loads(content, parse_int=_whole_number)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--config {path} is not JSON: {reason_of(error)}") from None
    if not isinstance(fields, dict):
        raise ConfigError(f"--config {path} must hold a JSON object of settings, like a run's config.json")
    try:
        fields = modernise(fields)
        fields = without_those_of_others(fields, str(fields.get("algo", "sac")))
        Config("?").replace(**{name: value for name, value in fields.items() if name != "env"})
    except (ValueError, TypeError, RecursionError, OverflowError, ConfigError) as error:
        raise ConfigError(f"--config {path}: {reason_of(error)}") from None
    return fields


def _parse_settings(content: bytes) -> dict[str, Any]:
    fields = json.loads(content, parse_int=_whole_number)
    if not isinstance(fields, dict):
        raise ValueError("it holds no settings")
    return fields


def _whole_number(text: str) -> int:
    value = int(text)
    if abs(value) > MAX_CONFIG_NUMBER:
        raise ValueError(f"{text:.20}... is too large a number")
    return value


def _make_parts(path: Path) -> None:
    for part in PARTS:
        make_own_folder(path / part, path)


def _entries(path: Path) -> list[Path]:
    """Return what is in a folder and in the parts of a run there."""
    return [entry for folder in (path, *(path / part for part in PARTS)) for entry in list_own(folder, path)]


def _require_never_began(path: Path) -> None:
    """Refuse a folder with more than a run creates before it begins: another one may have been killed then."""
    refusal = RunFolderError(f"--run-dir {path} is not empty: name a folder that is new or empty")
    if not {entry.name for entry in list_own(path, path)} <= {LOCK, *PARTS}:
        raise refusal
    require_own_entries(path)
    if any(list_own(path / part, path) for part in ("weights", "best")):
        raise refusal


def _unusable(path: Path, error: OSError) -> RunFolderError:
    return RunFolderError(f"'{path}' cannot be used ({error.strerror}): it must be a folder you may write to")


def _repair(journal: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        fd = open_own(journal, journal.parent, os.O_RDWR)
        try:
            cut_half_line(fd)
        finally:
            os.close(fd)
