"""Remembers what was measured on this machine: the settings that an adaptation found, and the times of an update.

Each kind is one small JSON file in the user's cache folder. Losing it costs a new search and nothing else, so a file
that cannot be used leads to a warning, never to an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from spreeze.adapt.update_times import UpdateTimes
from spreeze.config.run_settings import RunSettings
from spreeze.errors import one_line
from spreeze.host.files import read_bounded
from spreeze.host.hardware import Machine, cpu_name
from spreeze.host.json_text import json_file
from spreeze.host.version import VERSION

MAX_ENTRIES = 200  # about 60 kB; users have fewer tasks than that
MAX_FILE_BYTES = 1 << 22


class _Named(Protocol):
    def _asdict(self) -> dict[str, Any]: ...


Kept = TypeVar("Kept", bound=_Named)


class _Cache(Generic[Kept]):
    """Entries by key, in a file that several runs may use at once: the last one to write it wins."""

    file: ClassVar[str]
    what: ClassVar[str]
    """What is kept, as warnings call it."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or _default_path(self.file)
        """The file; None if the user has no home folder for it."""
        self.warning: str | None = None
        """What went wrong in the last call, in one line for the user; None if nothing did."""

    def recall(self, key: str) -> Kept | None:
        """Return the entry, or None if there is none; a broken one is ignored with a warning."""
        self.warning = None
        try:
            entries = self._read()
            return self._parse(entries[key])[0] if key in entries else None
        except (OSError, ValueError) as error:
            self.warning = f"{self.path} cannot be used ({_reason(error)}): starting from defaults; delete this file"
            return None

    def keep(self, key: str, kept: Kept) -> None:
        """Write an entry; broken ones are dropped from the file. On failure, `warning` says why."""
        self.warning = None
        if self.path is None:
            self.warning = f"the {self.what} are not remembered, since there is no home folder: set XDG_CACHE_HOME"
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Other runs may have written since the last read. What they write from here on is lost.
            others = [item for item in self._usable_entries().items() if item[0] != key]
            others.sort(key=lambda item: item[1][1])
            newest = [*others, (key, (kept, time.time()))][-MAX_ENTRIES:]
            self._write({name: {**entry._asdict(), "kept_at": kept_at} for name, (entry, kept_at) in newest})
        except OSError as error:
            self.warning = f"{self.path} cannot be written ({_reason(error)}): the {self.what} are not remembered"

    def _check(self, entry: dict[str, Any]) -> Kept:
        """Return the content of an entry; a ValueError says what is wrong with it."""
        raise NotImplementedError

    def _parse(self, entry: Any) -> tuple[Kept, float]:
        """Return the content of an entry, and when it was written."""
        if not isinstance(entry, dict):
            raise ValueError(f"an entry is {_shown(entry)}")
        return self._check(entry), _number(entry, "kept_at", 0)

    def _usable_entries(self) -> dict[str, tuple[Kept, float]]:
        entries: dict[str, tuple[Kept, float]] = {}
        with contextlib.suppress(OSError, ValueError):
            for key, entry in self._read().items():
                with contextlib.suppress(ValueError):
                    entries[key] = self._parse(entry)
        return entries

    def _read(self) -> dict[str, Any]:
        if self.path is None:
            return {}
        try:
            content = json.loads(read_bounded(self.path, MAX_FILE_BYTES, None))
        except (FileNotFoundError, NotADirectoryError):
            return {}  # nothing has been written yet
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        if not isinstance(content, dict):
            raise ValueError("it holds no entries by key")
        return content

    def _write(self, content: dict[str, Any]) -> None:
        assert self.path is not None
        # A temporary file is renamed, so that readers and other writers see the whole old file or the whole new one.
        descriptor, aside = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(json_file(content))
            Path(aside).replace(self.path)
        except BaseException:
            Path(aside).unlink(missing_ok=True)
            raise


class Memory(_Cache[RunSettings]):
    """The settings that an adaptation found, by machine and task."""

    file, what = "settings.json", "settings found"

    def _check(self, entry: dict[str, Any]) -> RunSettings:
        for name in ("samplers", "envs_per_sampler", "batch_size", "learner_threads"):
            _integer(entry, name)
        if type(entry.get("pinned")) is not bool:
            raise ValueError(f"pinned is {_shown(entry.get('pinned'))}")
        return RunSettings(**{name: entry[name] for name in RunSettings._fields})


class UpdateTimesMemory(_Cache[UpdateTimes]):
    """The times of an update that `spreeze bench split` measured, by GPUs and networks."""

    file, what = "parts.json", "update times"  # the file keeps its name of version 0.1

    def _check(self, entry: dict[str, Any]) -> UpdateTimes:
        for name in ("batch_size", "exchange_bytes", "exchange_updates"):
            _integer(entry, name)
        for name in ("whole_us", "critic_us", "actor_us", "exchange_us"):
            _number(entry, name, 1e-3)
        return UpdateTimes(**{name: entry[name] for name in UpdateTimes._fields})


def recall_update_times(machine: Machine, algo: str, hidden: tuple[int, ...]) -> UpdateTimes | None:
    """Return the times of an update on this machine's GPUs, if there are two and they were measured."""
    return UpdateTimesMemory().recall(update_times_key(machine, algo, hidden)) if len(machine.gpus) > 1 else None


def update_times_key(machine: Machine, algo: str, hidden: tuple[int, ...]) -> str:
    """Return what the times of an update depend on, in words."""
    return " | ".join([_version(), " ".join(gpu.name for gpu in machine.gpus), algo, "x".join(map(str, hidden))])


def machine_key(machine: Machine, env: str, env_kwargs: str, algo: str, device: str, hidden: tuple[int, ...]) -> str:
    """Return what settings depend on, in words: the version, the hardware that a run uses, and the task."""
    kind, _, index = device.partition(":")
    used_gpus = machine.gpus[int(index or 0) :][:1] if kind == "cuda" else ()
    words = (
        _version(),
        f"{machine.cores} cores of {cpu_name()}",
        " ".join([device, *(gpu.name for gpu in used_gpus)]),
        f"{env} {env_kwargs}".strip(),
        f"{algo} {'x'.join(map(str, hidden))}",
    )
    return " | ".join(words)


def _version() -> str:
    return "spreeze " + ".".join(VERSION.split(".")[:2])  # patch versions keep what was measured


def _integer(entry: dict[str, Any], name: str) -> None:
    value = entry.get(name)
    if type(value) is not int or not 1 <= value < 2**31:  # not isinstance: True is an int too
        raise ValueError(f"{name} is {_shown(value)}")


def _number(entry: dict[str, Any], name: str, least: float) -> float:
    value = entry.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < 2**53:
        raise ValueError(f"{name} is {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    # Without repr for containers: they may be nested deeper than repr can follow.
    return type(value).__name__ if isinstance(value, dict | list) else f"{value!r:.40}"


def _reason(error: OSError | ValueError) -> str:
    return (isinstance(error, OSError) and error.strerror) or one_line(error)  # the message names the path already


def _default_path(file: str) -> Path | None:
    cache = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The XDG specification says that a relative path is to be ignored.
        folder = Path(cache) if Path(cache).is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        return None  # the user has no home folder, as in some containers
    return folder / "spreeze" / file
