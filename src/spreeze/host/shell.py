"""Paths in commands that messages suggest to users."""

from __future__ import annotations

import shlex
from pathlib import Path


def for_shell(path: Path | str) -> str:
    """Return a path as one word of a shell's command line, which no command takes for a flag."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def from_folder(here: Path, path: Path) -> Path:
    """Return a path as short as it can be typed in the user's folder."""
    return path.relative_to(here) if path.is_relative_to(here) else path
