"""The lock of a run folder: only one process writes there.

A file `lock` that its owner holds with flock. The kernel releases it when the owner ends, also after `kill -9` or a
loss of power: a file that was left behind locks nothing. The file names the owner, for the error message of others.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
from pathlib import Path

from spreeze.errors import RunFolderError
from spreeze.host.files import read_bounded
from spreeze.host.own_files import open_own, remove_own

NAME = "lock"
MAX_SHOWN = 100  # the number of a process and the name of a machine; Linux allows 64 letters
_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)  # some network file systems have no such locks
_PEEK_S = 0.05  # longer than `require_unlocked` holds a lock


class RunLock:
    """A lock that is held."""

    def __init__(self, folder: Path, fd: int) -> None:
        self._folder, self._fd = folder, fd

    @classmethod
    def take(cls, folder: Path) -> RunLock:
        """Take the lock of a folder. Raises RunFolderError if another process has it, OSError if the disk fails."""
        while True:
            # Not inherited by child processes: they must not keep the lock after the owner's death.
            fd = open_own(folder / NAME, folder, os.O_RDWR | os.O_CREAT)
            try:
                if not _try_lock(fd, fcntl.LOCK_EX):
                    time.sleep(_PEEK_S)  # another process may only be checking
                    if not _try_lock(fd, fcntl.LOCK_EX):
                        raise _in_use(folder)
                lock = cls(folder, fd)
                if lock.is_in_place:
                    os.ftruncate(fd, 0)
                    os.pwrite(fd, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
                    return lock
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # its last owner deleted the file between our opening and locking it

    @property
    def is_in_place(self) -> bool:
        """Whether the lock file is still the one that is held: it may have been deleted with the folder."""
        try:
            return self._fd >= 0 and os.path.samestat(os.fstat(self._fd), (self._folder / NAME).lstat())
        except OSError:
            return False

    def release(self) -> None:
        """Release the lock."""
        if self._fd < 0:
            return
        if self.is_in_place:
            with contextlib.suppress(OSError):  # on a read-only disk the file stays, and locks nothing
                remove_own(self._folder / NAME, self._folder)
        os.close(self._fd)
        self._fd = -1


def require_unlocked(folder: Path) -> None:
    """Raise RunFolderError if a process holds the lock of a folder. Changes nothing."""
    try:
        fd = open_own(folder / NAME, folder)
    except OSError:
        return  # it was never locked, or is not a file
    try:
        if not _try_lock(fd, fcntl.LOCK_SH):
            raise _in_use(folder)
    finally:
        os.close(fd)


def _try_lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    return True


def _in_use(folder: Path) -> RunFolderError:
    try:
        text = read_bounded(folder / NAME, 1000, folder).decode(errors="replace").strip()
    except OSError:
        text = ""
    # A stranger may have written it: what could control the terminal is not shown.
    pid, _, host = (text if text.isprintable() and len(text) < MAX_SHOWN else "").partition(" ")
    owner = f"process {pid}" if pid.isdecimal() else "another process"
    place = f" on {host}" if host and host != socket.gethostname() else ""
    how = f"Ctrl-C there, or kill -INT {pid}" if pid.isdecimal() else "Ctrl-C there"
    return RunFolderError(
        f"'{folder}' is in use by {owner}{place}: end that run first ({how}), or name another folder"
    )
