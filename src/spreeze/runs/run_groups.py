"""Which runs are repetitions of each other, and how the others differ.

In: the configs of runs, as their folders hold them. Out: groups, each named by its differences from the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spreeze.config import Config, LimitsConfig, OutputConfig, WatchingConfig
from spreeze.config.own_settings import FIRST_GUESS, defaults_of_all

# May differ between repetitions: settings of when a run ends and what it shows, not of how it learns.
_OF_REPETITIONS = frozenset(
    ("seed", *(own.name for kind in (LimitsConfig, OutputConfig, WatchingConfig) for own in dataclasses.fields(kind)))
)
# Settings whose values are clear without the setting's name.
_SELF_EXPLAINING = ("env", "algo")


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ by chance only."""

    label: str
    """How this group differs from the others: "td3", "batch_size 256"."""
    members: tuple[int, ...]
    """The indices of its runs, in the order of the configs."""


def as_asked(config: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a run's config with "auto" for the settings that the run chose itself.

    Seeds of one command may start with other batch sizes or samplers, because found settings are remembered.
    """
    chosen = {str(event.get("setting")) for event in events if event.get("kind") == "choice"}
    chosen.discard("algo")  # which one a run has learned with is what people compare, whoever chose it
    return {name: "auto" if name in chosen else value for name, value in config.items()}


def group_runs(configs: Sequence[Mapping[str, Any]], unnamed: Collection[str] = ()) -> list[RunGroup]:
    """Group runs whose configs are equal apart from seed, limits and output, in the order of their first run.

    unnamed: fields that labels leave out, because they are shown elsewhere. Without any difference, the label is the
    algorithm.
    """
    # A run of a version without a field has learned as with the field's default.
    defaults = {**defaults_of_all(), **Config("?").flat(), "algo": FIRST_GUESS}
    settings = [{**defaults, **config} for config in configs]
    names = [name for name in dict.fromkeys(name for own in settings for name in own) if name not in _OF_REPETITIONS]
    members: dict[tuple[Any, ...], list[int]] = {}
    for index, own in enumerate(settings):
        members.setdefault(tuple(_comparable(own.get(name)) for name in names), []).append(index)
    differing = [
        name for place, name in enumerate(names) if len({key[place] for key in members}) > 1 and name not in unnamed
    ]
    first_of = {key: settings[indices[0]] for key, indices in members.items()}
    return [RunGroup(_label(first_of[key], differing), tuple(indices)) for key, indices in members.items()]


def _label(config: Mapping[str, Any], differing: Sequence[str]) -> str:
    unnamed = [name for name in _SELF_EXPLAINING if name in differing]
    named = [name for name in differing if name not in unnamed]
    parts = [str(config.get(name)) for name in unnamed] + [_named(name, config.get(name)) for name in named]
    return ", ".join(parts) or str(config.get("algo"))


def _named(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return name if value else f"no {name}"
    if isinstance(value, list | tuple):
        return f"{name} {' '.join(map(str, value)) or 'none'}"
    if isinstance(value, float):
        return f"{name} {value:g}"
    return f"{name} {'none' if value is None else value}"


def _comparable(value: Any) -> Any:
    """Return a value that can be a dict key; JSON has lists where configs have tuples."""
    if isinstance(value, list | tuple):
        return tuple(map(_comparable, value))
    return repr(sorted(value.items())) if isinstance(value, dict) else value
