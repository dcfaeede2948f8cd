"""Where `spreeze train --help` lists a setting, and for whom: marks on the types of the config's fields.

A mark on a group holds for all its fields; one on a field overrides it.
"""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

T = TypeVar("T")
Section = Literal["most used", "task", "stopping", "hardware", "learning", "algorithm", "output"]


@dataclass(frozen=True)
class Mark:
    """What the help has to know about a setting."""

    section: Section | None = None
    """Where it is listed."""
    is_for_experts: bool = False
    """Whether only `--help-all` lists it."""


MostUsed = Annotated[T, Mark("most used")]
Task = Annotated[T, Mark("task")]
Stopping = Annotated[T, Mark("stopping")]
Hardware = Annotated[T, Mark("hardware")]
Learning = Annotated[T, Mark("learning")]
Algorithm = Annotated[T, Mark("algorithm")]
Output = Annotated[T, Mark("output")]
Expert = Annotated[T, Mark(is_for_experts=True)]


@dataclass(frozen=True)
class Setting:
    """One leaf field of the config."""

    name: str
    owner: type
    """The dataclass it is a field of."""
    hint: Any
    """Its type, without marks."""
    mark: Mark


def settings_of(kind: type, group: Mark | None = None) -> dict[str, Setting]:
    """Return all leaf fields of a tree of dataclasses, by name, each with its marks combined."""
    found: dict[str, Setting] = {}
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        marks = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Mark)]
        mark = _combined([*([] if group is None else [group]), *marks])
        plain = hint.__origin__ if marks else hint
        if isinstance(plain, type) and issubclass(plain, dict):
            continue  # an algorithm's own, which it declares in its file
        if dataclasses.is_dataclass(plain) and isinstance(plain, type):
            found.update(settings_of(plain, mark))
        else:
            found[name] = Setting(name, kind, plain, mark)
    return found


def _combined(marks: list[Mark]) -> Mark:
    section: Section | None = None
    for mark in marks:
        section = mark.section or section
    return Mark(section, any(mark.is_for_experts for mark in marks))
