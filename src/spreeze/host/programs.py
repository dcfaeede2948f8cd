"""Python programs that this process starts: they import what it could import, and nothing from the current folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def python(*words: str) -> list[str]:
    """Return the command for a Python program. -P: without it, a `random.py` in the current folder would be run."""
    return [sys.executable, "-P", *words]


def python_path() -> str:
    """Return the PYTHONPATH with which a program finds the same modules, also those next to the user's script."""
    here = str(Path.cwd())  # what an empty entry stands for, as in a notebook
    entries = [entry or here for entry in sys.path]
    entries += filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    # `python -m spreeze` may have found us in the current folder, which is no entry of sys.path then.
    entries.append(str(Path(__file__).parents[2]))
    return os.pathsep.join(dict.fromkeys(entries))
