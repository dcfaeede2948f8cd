"""The algorithm that a config names, and that algorithm's own settings.

An algorithm declares its settings in its own file, as a dataclass. A config holds them as plain values by name, so
that processes without an algorithm need not import one.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from spreeze.algorithms import ALGORITHMS
from spreeze.algorithms.algorithm import Algorithm
from spreeze.config.declarations import check_algorithm
from spreeze.config.fields import conform, flag, leaf_types
from spreeze.errors import ConfigError, one_line
from spreeze.host.named_modules import import_named

AUTO = "auto"
FIRST_GUESS = "sac"
"""What --algo auto is taken for until the environment's actions are known: its settings are those of this one."""


# MODULE:CLASS, or a file in the module's place, which is refused where it is imported. Nothing else may pass as one:
# who only reads a config does not import what it names.
_OF_ONES_OWN = re.compile(r"[\w./\\~-]+:(?:[^\W\d]\w*|<locals>)(?:\.(?:[^\W\d]\w*|<locals>))*")


class OwnSettings(dict[str, Any]):
    """The values of an algorithm's own settings, by name. Part of a frozen config: never changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted(self.items())))


_given: dict[str, type[Algorithm]] = {}  # classes that a script has passed, which may not be importable by name


def give_algorithm(algorithm: type[Algorithm]) -> str:
    """Make a class known to this process; return the name that a config has for it."""
    path = f"{algorithm.__module__}:{algorithm.__qualname__}"
    name = next((name for name, own in ALGORITHMS.items() if own == path), path)
    _given[name] = check_algorithm(algorithm, name)
    return name


def short_name(algo: str) -> str:
    """Return the name of an algorithm where there is little room, or where it becomes part of a path: its class."""
    return algo.rpartition(":")[2].rpartition(".")[2]


def is_built_in(algo: str) -> bool:
    """Return whether an algorithm comes with Spreeze. Raises for a name that cannot be one at all."""
    if algo in ALGORITHMS or algo == AUTO:
        return True
    if _OF_ONES_OWN.fullmatch(algo):
        return False
    near = difflib.get_close_matches(algo.lower(), [*ALGORITHMS, AUTO], n=1)
    if dotted := re.fullmatch(r"([\w.]+)\.(?!py$)([^\W\d]\w*)", algo):
        near = [f"{dotted[1]}:{dotted[2]}"]
    names = ", ".join([AUTO, *ALGORITHMS])
    hint = f"did you mean {near[0]}?" if near else f"there are {names}, and MODULE:CLASS for your own"
    raise ConfigError(f"--algo '{algo}' is not known: {hint}")


def find_algorithm(algo: str) -> type[Algorithm]:
    """Return the class of an algorithm. MODULE:CLASS imports the module, also from the current folder."""
    if algo in _given:
        return _given[algo]
    if is_built_in(algo):
        return _built_in(algo)
    module_name, _, name = algo.partition(":")
    if module_name == "__main__" or "<locals>" in name:
        raise ConfigError(f"--algo {algo} was defined in a script: call spreeze from there, with algo=<the class>")
    found: Any = import_named(module_name, "--algo", ConfigError)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise ConfigError(f"--algo {algo}: the module '{module_name}' has no '{name}'")
    return check_algorithm(found, algo)


def own_types(algorithm: type[Algorithm]) -> Mapping[str, Any]:
    """Return the types of an algorithm's own settings, by name."""
    return leaf_types(algorithm.Settings)


def complete(algorithm: type[Algorithm], given: Mapping[str, Any]) -> OwnSettings:
    """Return the values of all own settings, those that are not given at their defaults."""
    types = own_types(algorithm)
    if unknown := sorted(given.keys() - types.keys()):
        known = f"it has {', '.join(types)}" if types else "it has none"
        raise ConfigError(f"{algorithm.__name__} has no setting '{unknown[0]}': {known}")
    values = {name: conform(name, value, types[name]) for name, value in given.items()}
    try:
        settings: Any = algorithm.Settings(**values)
    except ValueError as error:
        raise ConfigError(one_line(error)) from None
    return OwnSettings(dataclasses.asdict(settings))


def refuse_setting_of_another(name: str, algo: str) -> None:
    """Raise if this is a setting of another algorithm, or the negation of one."""
    owner = _owners().get(name)
    if owner not in (None, FIRST_GUESS if algo == AUTO else algo):
        raise ConfigError(f"{flag(name)} is a setting of {owner}: leave it out, or use --algo {owner}")


def without_those_of_others(fields: Mapping[str, Any], algo: str) -> dict[str, Any]:
    """Leave out settings of other algorithms that come with Spreeze: files of version 0.1 have those of all."""
    if not is_built_in(algo):
        return dict(fields)  # it may have settings of the same names
    own = own_types(_built_in(algo))
    return {name: value for name, value in fields.items() if name in own or name not in _owners()}


def defaults_of_all() -> dict[str, Any]:
    """Return the default of each setting that some algorithm of Spreeze has."""
    return {name: value for algo in ALGORITHMS for name, value in complete(_built_in(algo), {}).items()}


def _owners() -> Mapping[str, str]:
    """Return which algorithm has a setting; --no-double is one, too."""
    owners: dict[str, str] = {}
    for algo in ALGORITHMS:
        for name, hint in own_types(_built_in(algo)).items():
            owners |= dict.fromkeys((name, f"no_{name}") if hint is bool else (name,), algo)
    return owners


@cache
def _built_in(algo: str) -> type[Algorithm]:
    module, _, name = ALGORITHMS[FIRST_GUESS if algo == AUTO else algo].partition(":")
    found: type[Algorithm] = getattr(importlib.import_module(module), name)
    return found
