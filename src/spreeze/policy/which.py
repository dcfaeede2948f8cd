"""Which version of a run's policy is used: the best, the newest, or the one with a number.

Without a choice it is the best, unless too little was evaluated to say which that is. Let e be the updates of the
newest version that was evaluated, and n those of the newest version:
    the newest is used where  e < n / 2,  unless the run has reached its target return
Then more than half of what was learnt was never evaluated, and the best of the rest may be hardly trained at all.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from spreeze.channels.weights import read_metadata, version_path
from spreeze.errors import ConfigError, RunFolderError
from spreeze.host.files import read_bounded, read_tail, reason_of
from spreeze.host.own_files import list_own

LEAST_EVALUATED_SHARE = 0.5  # of the newest version's updates
TAIL_BYTES = 1 << 18  # of evaluations.jsonl, whose lines have less than 1 KB with 10 episodes
MAX_SUMMARY_BYTES = 1 << 22  # it has less than 1 KB
MAX_DIGITS = 18  # of a number in a file or a flag
MOST_LISTED = 20  # versions in a message: weights/ keeps eight

Which = str | int | None
"""Best, last, or a version by its number; None: no choice."""


class Chosen(NamedTuple):
    """A weights file."""

    file: Path
    why_newest: str | None = None
    """Why it is not the best version of its run, although nobody asked for another."""

    def say_why(self) -> None:
        """Say on stderr why it is not the best, where it is not."""
        if self.why_newest is not None:
            print(f"spreeze: {self.why_newest}", file=sys.stderr)


def find_weights(path: Path, which: Which = None) -> Path:
    """Return the file that `choose_weights` chooses, and say why it is not the best one, where it is not."""
    chosen = choose_weights(path, which)
    chosen.say_why()
    return chosen.file


def choose_weights(path: Path, which: Which = None) -> Chosen:
    """Return the weights file of a run folder, a folder of weights files, or the file itself."""
    version = _parse(which)
    if not path.exists():
        raise RunFolderError(f"there is no run folder or policy file '{path}'")
    if path.is_file():
        if which is not None:
            raise ConfigError(f"{path} is a weights file: a version can be chosen of a run folder only")
        return Chosen(path)
    best, versions = path / "best" / "policy.safetensors", _versions(path)
    has_best = os.path.lexists(best)
    if version is not None:
        return Chosen(_find_version(path, version, best, versions))
    if which == "best" and not has_best:
        listed = _listed(path, versions)
        raise RunFolderError(f"'{path}' has no best version: no evaluation has counted yet; {listed}")
    if not versions and not has_best:
        raise RunFolderError(f"'{path}' holds no policy: name a run folder that has weights/, or a .safetensors file")
    if which == "last" and not versions:
        raise RunFolderError(f"'{path}' has no versions in weights/ any more: --which best uses the best one")
    if which == "last" or not has_best:
        return Chosen(versions[-1])
    if which is None and versions and (reason := _why_newest(path, best, versions[-1])) is not None:
        return Chosen(versions[-1], reason)
    return Chosen(best)


def _parse(which: Which) -> int | None:
    """Return the version that is chosen by its number."""
    if which is None or which in ("best", "last"):
        return None
    text = str(which)
    if isinstance(which, str | int) and text.isdecimal() and len(text) < MAX_DIGITS:
        return int(text)
    raise ConfigError(f"--which must be best, last or the number of a version, not {which!r:.40}")


def _find_version(path: Path, version: int, best: Path, versions: list[Path]) -> Path:
    name = version_path(path, version).name
    if named := [file for file in versions if file.name == name]:
        return named[0]
    number = _number(best, path, "version")
    if number == version:
        return best
    raise RunFolderError(f"there is no version {version}: {_listed(path, versions, number)}")


def _why_newest(run: Path, best: Path, newest: Path) -> str | None:
    """Return why the newest version is used and not the best; None if the best is."""
    of_best, of_newest = _number(best, run, "updates"), _number(newest, run, "updates")
    if of_best is None or of_newest is None:
        return None  # files of somebody else, or damaged: who loads them says so
    evaluated = max(of_best, _last_evaluated(run))
    if evaluated >= LEAST_EVALUATED_SHARE * of_newest or _has_reached_target(run):
        return None
    used, other = _number(newest, run, "version"), _number(best, run, "version")
    return (
        f"the newest version of {run} is used, {used}, and not the best: the last one that was evaluated has "
        f'{evaluated:,} of its {of_newest:,} updates (the choice "best" uses version {other})'
    )


def _last_evaluated(run: Path) -> int:
    """Return the updates of the newest version with an evaluation that counts; 0 without one."""
    try:
        lines = read_tail(run / "evaluations.jsonl", TAIL_BYTES, run).split(b"\n")
    except OSError:
        return 0
    for text in reversed(lines):
        line = _parse_object(text)
        if _is_finite(line.get("mean_return")) and _is_finite(updates := line.get("updates")):
            return int(updates)
    return 0


def _has_reached_target(run: Path) -> bool:
    try:
        summary = _parse_object(read_bounded(run / "summary.json", MAX_SUMMARY_BYTES, run))
    except OSError:
        return False
    return _is_finite(summary.get("time_to_target_s"))


def _parse_object(text: bytes) -> dict[str, Any]:
    """Return the object of a line that may hold anything; an empty one if it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _is_finite(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _number(file: Path, run: Path, name: str) -> int | None:
    """Return a whole number in the metadata of a weights file; None if there is none."""
    try:
        text = read_metadata(file, run)[name]
    except (OSError, ValueError, KeyError):
        return None
    return int(text) if text.isdecimal() and len(text) < MAX_DIGITS else None


def _versions(path: Path) -> list[Path]:
    try:
        return list_own(path / "weights", path, "policy-*.safetensors") or list_own(path, path, "policy*.safetensors")
    except OSError as error:
        if os.path.lexists(path / "best" / "policy.safetensors"):
            return []
        raise RunFolderError(f"'{path}' cannot be used: {reason_of(error)}") from None


def _listed(run: Path, versions: list[Path], best: int | None = None) -> str:
    """Say which versions there are."""
    texts = (file.stem.partition("-")[2] for file in versions)
    numbers = sorted(int(text) for text in texts if text.isdecimal())
    if len(numbers) > MOST_LISTED:
        there = f"versions {numbers[0]} to {numbers[-1]}"
    elif numbers:
        there = f"version{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
    else:
        there = "no versions in weights/"
    return f"{run} has {there}" + ("" if best is None else f" and its best, {best}")
