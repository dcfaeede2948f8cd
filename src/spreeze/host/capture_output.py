"""Keeps what environments print out of the user's terminal: their libraries greet, warn and log as they like."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def capture_output(log_path: Path) -> Iterator[None]:
    """Send what environments print to a log and not onto the user's terminal: by Python, and by C libraries."""
    # One at a time: the descriptors belong to the whole process.
    with _output_lock:
        yield from _redirected(log_path)


_output_lock = threading.Lock()


def _redirected(log_path: Path) -> Iterator[None]:
    sys.stdout.flush()
    sys.stderr.flush()
    _flush_c()
    kept = [os.dup(1), os.dup(2)]
    with log_path.open("a") as log:
        try:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            # Also by name: in a notebook, Python's own streams do not end in descriptors 1 and 2.
            with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
                yield
        finally:
            _flush_c()
            for fd, original in zip((1, 2), kept, strict=True):
                os.dup2(original, fd)
                os.close(original)


def _flush_c() -> None:
    """Empty the buffers of C libraries: what is left in them comes out later, wherever the descriptors lead then."""
    ctypes.CDLL(None).fflush(None)
