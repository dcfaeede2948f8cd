"""Looks at a whole run folder before anything in it is written: it may come from a stranger.

In: a run folder. Out: nothing, or a RunFolderError about the first entry that is not a plain file or folder of its
own. Through a link in it, a run would change files elsewhere. The folder itself may be reached through a link.
"""

from __future__ import annotations

import importlib.util
import os
import stat
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from spreeze.config import Config
from spreeze.errors import RunFolderError, printable
from spreeze.host.own_files import HARD_LINK, kind_of, open_own_folder

# What Spreeze reads and writes; a test compares this with the folder of a finished run.
FILES: Mapping[str, tuple[str, ...]] = {
    ".": ("config.json", "summary.json", "metrics.jsonl", "evaluations.jsonl", "events.jsonl", "lock"),
    "weights": ("policy-*.safetensors",),
    "best": ("policy.safetensors", "evaluation.json"),
    "logs": ("*.log",),
    "checkpoint": ("manifest-*.json", "state-*.safetensors"),
    "checkpoint/replay": ("rows-*.f32",),
    "videos": ("*.mp4",),
    "videos/.weights": ("policy-*.safetensors",),
    "tensorboard": ("events.out.tfevents.*",),
}
WANDB = "wandb"
FOLDERS = frozenset((*FILES, WANDB)) - {"."}
# Weights & Biases makes links: these to its newest folder, and one in each of its folders to a log of its service, at
# which nobody writes. A session that is resumed gets a new folder.
WANDB_LINKS = ("latest-run", "debug.log", "debug-internal.log")
WANDB_SERVICE_LOG = "wandb/*run-*/logs/debug-core.log"


def require_own_entries(run: Path) -> None:
    """Raise RunFolderError unless a run folder holds only plain files and folders of its own. Changes nothing."""
    waiting = [run]
    while waiting:
        folder = waiting.pop()
        try:
            with open_own_folder(folder, run) as fd:
                waiting += _inner_folders(run, folder, fd)
        except FileNotFoundError:
            continue  # it was deleted meanwhile
        except OSError as error:
            raise RunFolderError(f"{shown(folder)} cannot be read ({error.strerror}): make it readable") from None


def require_plain_file(path: Path) -> None:
    """Raise RunFolderError if there is something else than a file in the place of a file. Changes nothing."""
    try:
        status = path.lstat()
    except OSError:
        return  # there is nothing
    if not stat.S_ISREG(status.st_mode):
        raise _refusal(path, kind_of(status))


def shown(path: Path) -> str:
    """Return a path for a message."""
    return printable(str(path))


def _inner_folders(run: Path, folder: Path, fd: int) -> list[Path]:
    """Check the entries of a folder; return those that are folders."""
    found = []
    with os.scandir(fd) as entries:
        for entry in entries:
            path = folder / entry.name
            place = PurePosixPath(path.relative_to(run))
            try:
                status = entry.stat(follow_symlinks=False)
                is_accepted = stat.S_ISLNK(status.st_mode) and _is_link_of_wandb(place, entry.name, fd)
            except FileNotFoundError:
                continue  # a temporary file of a run under way
            if stat.S_ISDIR(status.st_mode):
                found.append(path)
            is_wrong = _is_wrong_type(place, stat.S_ISDIR(status.st_mode))
            if not is_accepted and (is_wrong or not _is_own(status)):
                raise _refusal(path, kind_of(status))
    return found


def _is_own(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink <= 1)


def _is_wrong_type(place: PurePosixPath, is_folder: bool) -> bool:
    """Return whether a folder is where a run has a file, or the other way round."""
    if is_folder:
        return any(fnmatchcase(place.name, pattern) for pattern in FILES.get(str(place.parent), ()))
    return str(place) in FOLDERS


def _is_link_of_wandb(place: PurePosixPath, name: str, fd: int) -> bool:
    """Return whether a link is one of those that Weights & Biases makes, and leads nowhere else."""
    if len(place.parts) == 4:
        return place.match(WANDB_SERVICE_LOG)
    if str(place.parent) != WANDB or name not in WANDB_LINKS:
        return False
    target = PurePosixPath(os.readlink(name, dir_fd=fd))
    return not target.is_absolute() and os.pardir not in target.parts


def _refusal(path: Path, kind: str) -> RunFolderError:
    place = shown(path)
    if kind == HARD_LINK:
        return RunFolderError(
            f"{place} is {kind}: a run folder must have its own files, so copy the folder (cp -r) and use the copy"
        )
    if kind == "a symbolic link":
        return RunFolderError(
            f"{place} is {kind}, and none is followed in a run folder: remove it, or put a copy of its target there"
        )
    return RunFolderError(f"{place} is {kind}, which a run folder does not have there: remove it")


def require_no_code(run: Path, config: Config) -> None:
    """Refuse a config that names a module which is nowhere but in the run folder, when that is the current folder.

    Modules that are named are looked for there too, and whoever has sent the folder may have put one into it.
    """
    if not Path.cwd().resolve().is_relative_to(run.resolve()):
        return
    of_algorithm, _, has_module = config.algo.partition(":")
    named = (*config.environment.env_module, config.env.rpartition(":")[0], of_algorithm if has_module else "")
    for module in filter(None, named):
        if not _is_installed(module.partition(".")[0]):
            raise RunFolderError(
                f"'{run}' names the module '{module}', which is not installed: from inside a run folder, "
                "nothing else is imported; go to another folder"
            )


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
