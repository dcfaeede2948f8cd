"""What the fields of a configuration may hold, and the one line that is said when they hold something else."""

from __future__ import annotations

import dataclasses
import math
import numbers
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from spreeze.errors import ConfigError
from spreeze.host.json_text import exact_json_text


def flag(field_name: str) -> str:
    """Return the command-line flag of a field."""
    return "--" + field_name.replace("_", "-")


def leaf_types(kind: Any) -> Mapping[str, Any]:
    """Return the types of all leaf fields of a tree of dataclasses, by name."""
    leaves: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(kind).items():
        if not (isinstance(hint, type) and issubclass(hint, dict)):  # whose leaves an algorithm declares
            leaves.update(leaf_types(hint) if dataclasses.is_dataclass(hint) else {name: hint})
    return leaves


def describe_type(hint: Any) -> str:
    """Say in words what a field takes: a whole number or auto."""
    return " or ".join(_name_of_type(option) for option in _options(hint) if option is not types.NoneType)


def conform(name: str, value: Any, hint: Any) -> Any:
    """Check a value from Python or JSON against a field's type; turn lists into tuples, ints into floats."""
    if name == "env_kwargs" and isinstance(value, Mapping):
        try:
            return exact_json_text(dict(value))
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"env_kwargs holds something that is not JSON ({error}): pass a callable that makes the environment"
            ) from None
    if name == "run_dir" and isinstance(value, Path):
        return str(value)
    for option in _options(hint):
        if typing.get_origin(option) is Literal:
            if value in typing.get_args(option):
                return value
        elif typing.get_origin(option) is tuple:
            element, *others = typing.get_args(option)
            if others != [...]:
                if isinstance(value, (list, tuple)) and len(value) == 1 + len(others) and all(map(_is_number, value)):
                    return tuple(map(float, value))
                continue
            items = [value] if isinstance(value, element) else value
            if isinstance(items, (list, tuple)) and all(type(item) is element for item in items):
                return tuple(items)
        elif isinstance(value, bool) or option is bool:
            if option is bool and isinstance(value, bool):
                return value
        elif option is float and isinstance(value, numbers.Real):
            return float(value)
        elif option is int and isinstance(value, numbers.Integral):
            return int(value)
        elif type(value) is option:
            return value
    raise ConfigError(f"{flag(name)} must be {describe_type(hint)}, not {value!r}")


def _options(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


def _name_of_type(option: Any) -> str:
    if typing.get_origin(option) is Literal:
        return " or ".join(str(choice) for choice in typing.get_args(option))
    if typing.get_origin(option) is tuple:
        return {int: "whole numbers", str: "texts", float: "two numbers"}[typing.get_args(option)[0]]
    return {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}[option]


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def numeric(group: Any, name: str) -> float | None:
    """Return a field's number, or None where it is not one."""
    value = getattr(group, name)
    return None if value is None or isinstance(value, str) else float(value)


def require_device(name: str, device: str, known: str) -> None:
    """Raise unless a field names a device."""
    if device not in ("cpu", "cuda") and not (device.startswith("cuda:") and device[5:].isdigit()):
        raise ConfigError(f"{flag(name)} must be {known}, not '{device}'")


def require_at_least(group: Any, name: str, minimum: float) -> None:
    """Raise unless a field is auto, None or a number of at least this."""
    value = numeric(group, name)
    if value is not None and not (value >= minimum and math.isfinite(value)):
        raise ConfigError(f"{flag(name)} must be at least {minimum}, not {getattr(group, name)}")


def require_positive(group: Any, name: str) -> None:
    """Raise unless a field is auto, None or above 0."""
    value = numeric(group, name)
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise ConfigError(f"{flag(name)} must be above 0, not {getattr(group, name)}")


def require_finite(group: Any, name: str) -> None:
    """Raise unless a field is auto, None or finite."""
    value = numeric(group, name)
    if value is not None and not math.isfinite(value):
        raise ConfigError(f"{flag(name)} must be a finite number, not {getattr(group, name)}")


def require_within(group: Any, name: str, low: float, high: float) -> None:
    """Raise unless a field is auto, None or between these."""
    value = numeric(group, name)
    if value is not None and not low <= value <= high:
        raise ConfigError(f"{flag(name)} must be between {low} and {high}, not {getattr(group, name)}")
