"""What is wrong with an environment, in words, each with the line that fixes it."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import numpy as np

from spreeze.errors import one_line
from spreeze.host.alarm import TookTooLong

_SITE_PACKAGES = sysconfig.get_path("purelib")
_STANDARD_LIBRARY = sysconfig.get_path("stdlib")
# Lines of these show how a call came to the environment, or where in a library it failed, not what to correct.
_LIBRARIES = tuple(str(Path(file).parent) for file in (gymnasium.__file__, np.__file__, str(Path(__file__).parent)))

WAITS = "find out what it waits for there; if it is only slow, --hang-s has to be longer, here and in a training"


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with an environment, or worth knowing about it."""

    problem: str
    fix: str
    is_fatal: bool = False
    """Whether the environment cannot be trained on."""
    is_note: bool = False
    """Whether it is no error: about speed, about style, or perhaps intended."""


class Unusable(Exception):
    """There is no way to play on; carries the finding, and what the environment raised."""

    def __init__(self, finding: Finding, error: BaseException | None = None) -> None:
        super().__init__(finding.problem)
        self.finding, self.error = finding, error


def text_of(error: BaseException) -> str:
    """Return the type and the message of an exception, on one line."""
    try:
        message = one_line(error)
    except BaseException:  # an exception of the environment's own, whose __str__ raises
        message = ""
    name = type(error).__name__
    return name if message in ("", name) else f"{name}: {message}"


def place_of(error: BaseException) -> str:
    """Return the last line of the environment's own code that an exception came through, or nothing."""
    return place_in(
        [(each.filename, each.lineno or 0, each.name) for each in traceback.extract_tb(error.__traceback__)]
    )


def place_in(frames: Sequence[tuple[str, int, str]]) -> str:
    """Return the innermost line of the environment's own code, or nothing.

    frames: file, line and function, the innermost call last.
    """
    own = [frame for frame in frames if not _is_of_a_library(frame[0])]
    if not own:
        return ""
    file, line, function = own[-1]
    path = Path(file)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f" ({shown}:{line}, in {function})"


def raised(what: str, error: BaseException) -> Finding:
    """Return the finding about an exception of the environment; what: reset, step, or the constructor."""
    if isinstance(error, TookTooLong):
        return Finding(f"{what} hangs: {one_line(error)}{place_of(error)}", WAITS, is_fatal=True)
    return Finding(
        f"{what} raised {text_of(error)}{place_of(error)}",
        "correct this line, or what it is given: with --serial a debugger stops there",
        is_fatal=True,
    )


def _is_of_a_library(file: str) -> bool:
    is_standard = file.startswith(_STANDARD_LIBRARY) and not file.startswith(_SITE_PACKAGES)
    return is_standard or file.startswith((*_LIBRARIES, "<"))
