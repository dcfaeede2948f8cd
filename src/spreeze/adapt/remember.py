"""Remembers the settings that an adaptation found: the next run of the same task on this machine starts there.

They lie in one small JSON file in the user's cache folder. To lose them costs a search and no more: whatever is wrong
with the file is a warning, never an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from spreeze import __version__
from spreeze.adapt.hardware import Machine
from spreeze.adapt.tune import Settings
from spreeze.errors import one_line

MAX_ENTRIES = 200  # some 60 kB; a user has fewer tasks than that at a time
_CPU_INFO = Path("/proc/cpuinfo")


class Memory:
    """Settings by key, in a file that several runs may use at once: the last to write it wins."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or _default_path()
        """The file; None where there is no place for one."""
        self.warning: str | None = None
        """What went wrong in the last call, in a line for the user; None if nothing did."""

    def recall(self, key: str) -> Settings | None:
        """Return the settings that were kept, or None if there are none; what is broken is ignored with a warning."""
        self.warning = None
        try:
            entries = self._read()
            return _parse(entries[key]).settings if key in entries else None
        except (OSError, ValueError) as error:
            self.warning = f"{self.path} cannot be used ({_reason(error)}): starting from defaults; delete this file"
            return None

    def keep(self, key: str, settings: Settings) -> None:
        """Remember settings; what cannot be understood of the file is replaced. On failure, `warning` says why."""
        self.warning = None
        if self.path is None:
            self.warning = "the settings found are not remembered, for want of a home folder: set XDG_CACHE_HOME"
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Read again just now: other runs may have written since. What they write from here on is lost.
            others = [item for item in self._usable_entries().items() if item[0] != key]
            others.sort(key=lambda item: item[1].kept_at)
            entries = dict([*others, (key, _Entry(settings, time.time()))][-MAX_ENTRIES:])
            self._write({name: {**kept._asdict(), "kept_at": kept_at} for name, (kept, kept_at) in entries.items()})
        except OSError as error:
            self.warning = f"{self.path} cannot be written ({_reason(error)}): the settings found are not remembered"

    def _usable_entries(self) -> dict[str, _Entry]:
        entries = {}
        with contextlib.suppress(OSError, ValueError):
            for key, entry in self._read().items():
                with contextlib.suppress(ValueError):
                    entries[key] = _parse(entry)
        return entries

    def _read(self) -> dict[str, Any]:
        if self.path is None:
            return {}
        try:
            content = json.loads(self.path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return {}  # nothing was kept yet
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        if not isinstance(content, dict):
            raise ValueError("it holds no entries by key")
        return content

    def _write(self, content: dict[str, Any]) -> None:
        assert self.path is not None
        # Of a name of its own, and renamed: readers and other writers see a whole file, the old one or the new.
        descriptor, aside = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(json.dumps(content, indent=2) + "\n")
            Path(aside).replace(self.path)
        except BaseException:
            Path(aside).unlink(missing_ok=True)
            raise


def machine_key(machine: Machine, env: str, env_kwargs: str, algo: str, device: str, hidden: tuple[int, ...]) -> str:
    """Return what settings depend on, in words: the version, the hardware that a run uses, and the task."""
    version = ".".join(__version__.split(".")[:2])  # a fix changes no settings; what is best in 0.1 may not be in 0.2
    kind, _, index = device.partition(":")
    used_gpus = machine.gpus[int(index or 0) :][:1] if kind == "cuda" else ()
    parts = (
        f"spreeze {version}",
        f"{machine.cores} cores of {_cpu_name()}",
        " ".join([device, *(gpu.name for gpu in used_gpus)]),
        f"{env} {env_kwargs}".strip(),
        f"{algo} {'x'.join(map(str, hidden))}",
    )
    return " | ".join(parts)


class _Entry(NamedTuple):
    settings: Settings
    kept_at: float


def _parse(entry: Any) -> _Entry:
    """Check an entry of the file; a ValueError says what is wrong with it."""
    if not isinstance(entry, dict):
        raise ValueError(f"an entry is {_shown(entry)}")
    for name in ("samplers", "envs_per_sampler", "batch_size", "learner_threads"):
        value = entry.get(name)
        if type(value) is not int or not 1 <= value < 2**31:  # not isinstance: True is an int too
            raise ValueError(f"{name} is {_shown(value)}")
    if type(entry.get("pinned")) is not bool:
        raise ValueError(f"pinned is {_shown(entry.get('pinned'))}")
    kept_at = entry.get("kept_at")
    if isinstance(kept_at, bool) or not isinstance(kept_at, int | float) or not 0 <= kept_at < 2**53:
        raise ValueError(f"kept_at is {_shown(kept_at)}")
    return _Entry(Settings(**{name: entry[name] for name in Settings._fields}), kept_at)


def _shown(value: Any) -> str:
    # No repr of what has parts: it may be nested deeper than repr can follow.
    return type(value).__name__ if isinstance(value, dict | list) else f"{value!r:.40}"


def _reason(error: OSError | ValueError) -> str:
    return (isinstance(error, OSError) and error.strerror) or one_line(error)  # the path stands in the line already


def _default_path() -> Path | None:
    cache = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The XDG specification: a path that is not absolute is to be ignored.
        folder = Path(cache) if Path(cache).is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        return None  # a user without a home, as in some containers
    return folder / "spreeze" / "settings.json"


def _cpu_name() -> str:
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
