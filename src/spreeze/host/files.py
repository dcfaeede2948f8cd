"""Files that are written whole or not at all, and read up to a limit.

A file that is read may come from a stranger, or from a failed disk: no function here blocks on a pipe, reads a device
without end, or takes more memory than the caller allows.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from spreeze.errors import one_line
from spreeze.host.own_files import create_own, make_own_folder, open_own, remove_own, replace_own

Content = bytes | Sequence[bytes | memoryview]
"""What a file is to hold: in one piece, or in several where one would be another copy of gigabytes."""


def write_whole(path: Path, content: bytes, root: Path) -> None:
    """Write a temporary file and rename it. If that fails, the old file stays, and nothing else is left.

    root: the run folder that the file lies in. No link below it is followed.
    """
    write_together({path: content}, root)


def write_together(contents: Mapping[Path, Content], root: Path, sync: bool = False) -> None:
    """Write several files that belong together: all to temporary files first, so that a full disk changes none.

    sync: wait until they are on the disk, for files that must survive a loss of power.
    """
    aside = {path: aside_of(path) for path in contents}
    try:
        for path, content in contents.items():
            with os.fdopen(create_own(aside[path], root), "wb") as file:
                for piece in (content,) if isinstance(content, bytes) else content:
                    file.write(piece)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
        for path in contents:
            replace_own(aside[path], path, root)
    except BaseException:
        for left in aside.values():
            with contextlib.suppress(OSError):
                remove_own(left, root)
        raise


def write_with_folders(contents: Mapping[Path, Content], root: Path) -> None:
    """Write files that belong together, and create missing folders.

    Writing is tried first: a folder that is created first can be deleted before anything is written to it.
    """
    try:
        write_together(contents, root)
    except FileNotFoundError:
        for path in contents:
            make_own_folder(path.parent, root)
        write_together(contents, root)


def aside_of(path: Path) -> Path:
    """Return the name of the temporary file to which this process writes a file before renaming it."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def open_regular(path: Path, root: Path | None) -> BinaryIO:
    """Open a file for reading. Raises OSError at once for a pipe, a device or a folder.

    root: the run folder that the file lies in: no link below it is followed. None for a file that the user has named,
    which may be a link.
    """
    if root is not None:
        return os.fdopen(open_own(path, root), "rb")
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(fd, "rb")


def read_bounded(path: Path, most_bytes: int, root: Path | None) -> bytes:
    """Read a file of at most this size; root: as of `open_regular`. Raises OSError for a larger one, unread."""
    with open_regular(path, root) as file:
        size = os.fstat(file.fileno()).st_size
        if size <= most_bytes:
            return file.read(size)  # not most_bytes: `read` allocates all that it is asked for
    raise OSError(errno.EFBIG, f"it has more than {most_bytes} bytes", str(path))


def read_tail(path: Path, most_bytes: int, root: Path | None) -> bytes:
    """Read the end of a file, at most this much of it; root: as of `open_regular`."""
    with open_regular(path, root) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most_bytes))
        return file.read(most_bytes)


def reason_of(error: Exception) -> str:
    """Return why a file could not be used, in one line without its path, which the caller's message names."""
    reason = (isinstance(error, OSError) and error.strerror) or one_line(error)
    return reason[:300]  # the content of a file may make it longer
