"""Plain files and folders below a run folder, which may come from a stranger: no link in it is followed.

Every function takes a path and the run folder that it lies in, `root`. The root and what is above it may be links:
the user has named them. Below it each folder is opened through its parent's descriptor, so that a link, a device or a
pipe is refused even if it is put there between a look and the use of it. A refusal is an OSError and changes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFREG: "a file",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}
HARD_LINK = "a hard link, the same file as one elsewhere"


def kind_of(status: os.stat_result) -> str:
    """Return what an entry of a folder is, in words."""
    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
        return HARD_LINK
    return _KINDS.get(stat.S_IFMT(status.st_mode), "not a file")


def open_own(path: Path, root: Path, flags: int = os.O_RDONLY) -> int:
    """Open a plain file; return its descriptor.

    flags: as of `os.open`, without O_TRUNC. To write to a file it must have no second name: a hard link is somebody
    else's file too.
    """
    writes = bool(flags & (os.O_WRONLY | os.O_RDWR))
    with _parent(path, root) as (parent, name):
        with contextlib.suppress(FileNotFoundError):
            # Before it is opened: to open a device may have an effect, and a pipe would wait.
            _require_plain(os.stat(name, dir_fd=parent, follow_symlinks=False), writes, path)
        safe = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(name, flags | safe, 0o666, dir_fd=parent)
    try:
        _require_plain(os.fstat(fd), writes, path)  # it may be another one by now
        os.set_blocking(fd, True)
    except BaseException:
        os.close(fd)
        raise
    return fd


def create_own(path: Path, root: Path) -> int:
    """Create a new file in the place of one that an earlier process has left; return its descriptor."""
    with _parent(path, root) as (parent, name):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=parent)


def replace_own(source: Path, target: Path, root: Path) -> None:
    """Rename a file of the same folder. A link in the place of the target is replaced, not followed."""
    with _parent(target, root) as (parent, name):
        os.replace(source.name, name, src_dir_fd=parent, dst_dir_fd=parent)


def remove_own(path: Path, root: Path) -> None:
    """Delete a file; of a link, the link."""
    with _parent(path, root) as (parent, name):
        os.unlink(name, dir_fd=parent)


def remove_own_folder(folder: Path, root: Path) -> None:
    """Delete a folder with everything in it, as far as possible; of links in it, the links."""
    with contextlib.suppress(OSError), _parent(folder, root) as (parent, name):
        shutil.rmtree(name, ignore_errors=True, dir_fd=parent)


def stat_own(path: Path, root: Path) -> os.stat_result:
    """Return the status of a plain file."""
    with _parent(path, root) as (parent, name):
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    _require_plain(status, False, path)
    return status


def is_own_file(path: Path, root: Path) -> bool:
    """Return whether there is such a file, and it is a plain one."""
    try:
        stat_own(path, root)
    except OSError:
        return False
    return True


def make_own_folder(folder: Path, root: Path) -> None:
    """Create a folder, and those that it lies in, unless they exist."""
    root.mkdir(parents=True, exist_ok=True)
    for missing in (*reversed(folder.relative_to(root).parents), folder.relative_to(root)):
        if missing.parts:
            with _parent(root / missing, root) as (parent, name), contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=parent)
    with open_own_folder(folder, root):
        pass  # it may have existed as something else


def list_own(folder: Path, root: Path, pattern: str = "*") -> list[Path]:
    """Return what is in a folder, sorted by name; nothing if there is no such folder."""
    try:
        with open_own_folder(folder, root) as fd:
            return [folder / name for name in sorted(os.listdir(fd)) if fnmatchcase(name, pattern)]  # noqa: PTH208
    except FileNotFoundError:
        return []


def sync_own_folder(folder: Path, root: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    with open_own_folder(folder, root) as fd:
        os.fsync(fd)


@contextlib.contextmanager
def open_own_folder(folder: Path, root: Path) -> Iterator[int]:
    """Open a folder for the block, and yield its descriptor."""
    fd = os.open(root, _FOLDER)
    try:
        for name in folder.relative_to(root).parts:
            inner = _open_inner(name, fd, folder)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _parent(path: Path, root: Path) -> Iterator[tuple[int, str]]:
    with open_own_folder(path.parent, root) as fd:
        yield fd, path.name


def _open_inner(name: str, parent: int, whole: Path) -> int:
    if name == os.pardir:
        raise OSError(errno.EINVAL, "its path leads out of the run folder", str(whole))
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
    except FileNotFoundError:
        raise
    except OSError as error:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            raise
        raise OSError(error.errno, f"{name} is {kind_of(status)}, not a folder", str(whole)) from None


def _require_plain(status: os.stat_result, writes: bool, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        number = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
        raise OSError(number, f"it is {kind_of(status)}, not a regular file", str(path))
    if writes and status.st_nlink > 1:
        raise OSError(errno.EINVAL, f"it is {HARD_LINK}", str(path))
