"""An alarm for calls of user code that may never return."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

AGAIN_S = 5.0  # what follows, such as a close, may hang too


class TookTooLong(BaseException):
    """Raised in the call that did not return."""


@contextlib.contextmanager
def raising_after(seconds: float) -> Iterator[None]:
    """Raise `TookTooLong` within the block once it takes so long, and again a little later.

    In the main thread, which signals interrupt; a call that never returns from C is not reached.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TookTooLong(f"it did not return within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
