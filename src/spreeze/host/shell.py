"""Paths in commands that messages suggest to users."""

from __future__ import annotations

import shlex
from pathlib import Path


def for_shell(path: Path | str) -> str:
    """Return a path as one word of a shell's command line, which no command takes for a flag."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)
