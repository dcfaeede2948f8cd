"""Compares an environment with the one that a run was trained on, before the run is resumed.

In: two descriptions of `environments/description.py`, one from a checkpoint. Out: an error of one line where spaces,
id or arguments differ, and a warning where only the version of a package does: most behave as before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spreeze.channels.environment_facts import EnvironmentFacts
from spreeze.channels.transitions import RowLayout
from spreeze.config.env_spec import EnvSpec
from spreeze.errors import CheckpointError, RunFolderError
from spreeze.host.json_text import json_text
from spreeze.supervision.checkpoint_orders import ResumePoint

MAX_TOLD, MAX_LETTERS = 3, 100  # of an error's line
NOTHING = object()  # of what only one of two descriptions has
VERSION = re.compile(r"[\w.+!-]{1,50}")  # a checkpoint may be a stranger's, and people copy what they are told
BOUNDS = ("low", "high", "nvec", "start")
"""What differs wherever the shape does, and need not be told then."""


@dataclass(frozen=True)
class Difference:
    """What has changed."""

    name: str
    before: str
    now: str

    def __str__(self) -> str:
        return f"{self.name} was {self.before} and is {self.now} now"


def require_same_environment(
    run: Path, env: EnvSpec, resume_point: ResumePoint, facts: EnvironmentFacts
) -> list[str]:
    """Raise unless a run's environment is the one that it was trained on; return warnings about its packages."""
    before, now = resume_point.progress.environment, facts.description
    if before is None:  # checkpoints before 0.2: the width of their rows is all that is known
        _require_same_width(run, env, resume_point.checkpoints[0].row_width, facts)
        return []
    try:
        versions = list(_compare_versions(before.get("packages"), now["packages"]))
        made = [*_compare_ids(before.get("id"), now["id"]), *_compare_arguments(before.get("kwargs"), now["kwargs"])]
        found = list(made)
        for what in ("observation", "action"):
            found += _compare_spaces(what, before.get(what), now[what])
    except RecursionError:
        raise CheckpointError(f"the checkpoint of '{run}' does not describe an environment") from None
    if not found:
        return [f"{env.name}: {version}; it may behave differently" for version in versions]
    more = f" and {len(found) - MAX_TOLD} more" if len(found) > MAX_TOLD else ""
    raise RunFolderError(
        f"{env.name} is not the environment that '{run}' was trained on: "
        f"{', '.join(map(str, found[:MAX_TOLD]))}{more}; {_remedy(run, env, made, versions)}"
    )


def _require_same_width(run: Path, env: EnvSpec, width: int, facts: EnvironmentFacts) -> None:
    layout = RowLayout.of(facts.spaces)
    if width not in (0, layout.width):
        raise RunFolderError(
            f"{env.name} has other observations or actions than the environment that '{run}' was trained on: a "
            f"transition has {layout.width} numbers, and those of the checkpoint {width}; {_remedy(run, env)}"
        )


def _remedy(run: Path, env: EnvSpec, made: Sequence[Difference] = (), versions: Sequence[Difference] = ()) -> str:
    if env.factory is not None:
        fix = "pass the env that it was trained on"
    elif made:
        fix = f"set env and env_kwargs in {run / 'config.json'} back"
    elif versions:
        installed = " ".join(f"{version.name}=={version.before}" for version in versions)
        fix = f"{', '.join(map(str, versions))}: install {installed}"
    else:
        fix = "use the environment's code as it was"
    return f"{fix}, or start a new run"


# --- what differs ------------------------------------------------------------------------------------------------


def _compare_ids(before: Any, now: Any) -> Iterator[Difference]:
    # A class has no id: it may have been corrected since, and its spaces say whether the run can go on.
    if before is not None and now is not None and before != now:
        yield Difference("id", _say(before), _say(now))


def _compare_arguments(before: Any, now: Mapping[str, Any]) -> Iterator[Difference]:
    before = before if isinstance(before, Mapping) else {}
    for name in dict.fromkeys((*before, *now)):
        one, other = before.get(name, NOTHING), now.get(name, NOTHING)
        if one != other:
            yield Difference(f"argument {_name(name)}", _say(one), _say(other))


def _compare_versions(before: Any, now: Mapping[str, str]) -> Iterator[Difference]:
    before = before if isinstance(before, Mapping) else {}
    for name, version in now.items():
        one = before.get(name)  # of a package that only one of them knows, nothing can be said
        if isinstance(one, str) and VERSION.fullmatch(one) and one != version:
            yield Difference(name, one, version)


def _compare_spaces(name: str, before: Any, now: Mapping[str, Any]) -> Iterator[Difference]:
    before = before if isinstance(before, Mapping) else {}
    if before.get("kind") != now["kind"]:
        yield Difference(f"{name} space", _say(before.get("kind", NOTHING)), _say(now["kind"]))
    elif now["kind"] in ("Dict", "Tuple"):
        yield from _compare_keys(name, now["kind"], _parts(before), _parts(now))
    else:
        has_same_shape = before.get("shape") == now["shape"]
        for part in (part for part in now if has_same_shape or part not in BOUNDS):
            one, other = before.get(part, NOTHING), now[part]
            if one != other and part in BOUNDS:
                yield _first_difference(f"{name} {part}", one, other)
            elif one != other:
                yield Difference(f"{name} {part}", _say(one), _say(other))


def _compare_keys(name: str, kind: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Difference]:
    # In their order, in which the parts become a vector.
    if list(before) != list(now):
        yield Difference(f"{name} space", f"{kind} of {_say(list(before))}", f"{kind} of {_say(list(now))}")
        return
    for key, part in now.items():
        yield from _compare_spaces(f"{name}[{_name(key)}]", before[key], part)


def _parts(space: Mapping[str, Any]) -> Mapping[str, Any]:
    parts = space.get("parts")
    if isinstance(parts, list):
        return {str(index): part for index, part in enumerate(parts)}
    return parts if isinstance(parts, Mapping) else {}


def _first_difference(name: str, before: Any, now: Any) -> Difference:
    """Say where two arrays differ first, if both are known number by number."""
    lengths = {len(array) for array in (before, now) if isinstance(array, list)}
    if len(lengths) == 1 and not any(isinstance(array, Mapping) or array is NOTHING for array in (before, now)):
        (length,) = lengths
        lists = [array if isinstance(array, list) else [array] * length for array in (before, now)]
        for index, (one, other) in enumerate(zip(*lists, strict=True)):
            if one != other:
                return Difference(f"{name}[{index}]", _say(one), _say(other))
    return Difference(name, _say(before), _say(now))


# --- in words ----------------------------------------------------------------------------------------------------


def _say(value: Any) -> str:
    """Return a value in a few words. It may be a stranger's: JSON has no character that moves a cursor."""
    if value is NOTHING:
        return "not given"
    if isinstance(value, Mapping) and "sha256" in value:
        about = ", ".join(f"{name} {_say(part)}" for name, part in value.items() if name != "sha256")
        return f"({about}, SHA-256 {str(value['sha256'])[:8]!a})"
    text = json_text(value)
    return text if len(text) <= MAX_LETTERS else f"{text[:MAX_LETTERS]}..."


def _name(name: Any) -> str:
    return _say(name).strip('"')
