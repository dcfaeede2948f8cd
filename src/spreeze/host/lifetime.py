"""Ends a process when its parent ends: at once, or after it has closed what must not be left open."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

CLOSE_GRACE_S = 10.0  # for a robot to be closed, from the moment that its process learns of the end of a run

_PR_SET_PDEATHSIG = 1
_parent_ended = threading.Event()


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to kill this process when its parent ends, however it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)  # it had ended before the call above


def outlive_parent() -> None:
    """Take that back, for a process that notices it by itself and has something to close first."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)


def parent_has_ended() -> bool:
    """Return whether the parent has ended, as far as `exit_at_end_of_file` has noticed."""
    return _parent_ended.is_set()


def exit_at_end_of_file(fd: int, grace_s: float) -> None:
    """Wait for the end of a pipe, which the parent holds open for its life; end this process a while later."""
    os.read(fd, 1)
    _parent_ended.set()
    if grace_s:
        time.sleep(grace_s)  # the process mostly ends by itself meanwhile
    os._exit(1)
