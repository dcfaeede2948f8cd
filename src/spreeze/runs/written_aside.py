"""Files that a process has begun to write and could not rename, because it was killed: they are of no use."""

from __future__ import annotations

import contextlib
from pathlib import Path

from spreeze.host.own_files import is_own_file, list_own, remove_own

# Where processes that may be killed write whole files: `host.files.aside_of` names what they are writing.
FOLDERS = ("best", "checkpoint", "weights", "videos/.weights")


def remove_written_aside(run: Path) -> None:
    """Delete them. Called by the owner of a run folder, once no process of the run is left."""
    for folder in FOLDERS:
        with contextlib.suppress(OSError):  # a disk that fails may be why they are there
            for path in list_own(run / folder, run, ".*.*.*"):
                if path.name.rpartition(".")[2].isdecimal() and is_own_file(path, run):
                    remove_own(path, run)
