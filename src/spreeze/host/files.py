"""Files that are written whole or not at all, and read no further than they may be long.

What is read may come from a stranger, or from a disk that failed: nothing here waits for a pipe, follows a device
without end, or takes more memory than the reader allows.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO


def write_whole(path: Path, content: bytes) -> None:
    """Write a file aside and rename it. Where that fails, the old one stays, and nothing else is left."""
    write_together({path: content})


def write_together(contents: Mapping[Path, bytes], sync: bool = False) -> None:
    """Write several files that belong together: all aside first, so that a full disk changes none of them.

    sync: wait until they are on the disk, for what must outlast a loss of power.
    """
    aside = {path: aside_of(path) for path in contents}
    try:
        for path, content in contents.items():
            with aside[path].open("wb") as file:
                file.write(content)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
        for path in contents:
            aside[path].replace(path)
    except BaseException:
        for left in aside.values():
            with contextlib.suppress(OSError):
                left.unlink()
        raise


def write_anew(contents: Mapping[Path, bytes]) -> None:
    """Write files that belong together; folders that are not there, or are deleted meanwhile, are made anew.

    Written first and made after: a folder that is made first can be deleted before anything is written to it.
    """
    try:
        write_together(contents)
    except FileNotFoundError:
        for path in contents:
            path.parent.mkdir(parents=True, exist_ok=True)
        write_together(contents)


def aside_of(path: Path) -> Path:
    """Return the name under which this process writes a file before it is whole."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; what is a pipe, a device or a folder instead is an OSError, at once."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(fd, "rb")


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """Read a file of at most this size; a larger one is an OSError, and is not read."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size <= most_bytes:
            return file.read(size)  # not most_bytes: `read` makes room for all that it is asked for
    raise OSError(errno.EFBIG, f"it has more than {most_bytes} bytes", str(path))


def reason_of(error: Exception) -> str:
    """Return why a file could not be used, on one line and without its path, which the message names already."""
    said = (isinstance(error, OSError) and error.strerror) or " ".join(str(error).split())
    return said[:300] or type(error).__name__  # a file may have a say in how long it is
