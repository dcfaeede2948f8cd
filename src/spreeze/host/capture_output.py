"""Keeps the output of environments and their libraries out of the user's terminal."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from spreeze.host.logs import open_log


@contextlib.contextmanager
def capture_output(log_path: Path) -> Iterator[None]:
    """Redirect what Python and C libraries print to a log of a run, or to os.devnull, within the block."""
    # One at a time: the descriptors belong to the whole process.
    with _output_lock, _open(log_path) as log:
        yield from _redirected(log)


def _open(log_path: Path) -> TextIO:
    return log_path.open("a") if str(log_path) == os.devnull else os.fdopen(open_log(log_path), "a")


_output_lock = threading.Lock()


def _redirected(log: TextIO) -> Iterator[None]:
    sys.stdout.flush()
    sys.stderr.flush()
    _flush_c()
    kept = [os.dup(1), os.dup(2)]
    try:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        # Also Python's streams: in a notebook they do not lead to descriptors 1 and 2.
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            yield
    finally:
        _flush_c()
        for fd, original in zip((1, 2), kept, strict=True):
            os.dup2(original, fd)
            os.close(original)


def _flush_c() -> None:
    """Flush the buffers of C libraries: what stays in them would be printed after the descriptors have changed."""
    ctypes.CDLL(None).fflush(None)
