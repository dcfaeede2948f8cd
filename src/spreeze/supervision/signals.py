"""The signals that end a run."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, ClassVar

from spreeze.runs.result import StopReason


class Signals:
    """Ctrl-C, SIGTERM and a closed terminal end a run in order; a second one cuts the waiting short.

    A handler only records them and `Watch` looks at them, so that nothing is interrupted halfway, except where
    waiting may be long.
    """

    _REASONS: ClassVar[dict[int, StopReason]] = {
        signal.SIGINT: "interrupted",
        signal.SIGTERM: "terminated",
        signal.SIGHUP: "terminated",
    }

    def __init__(self) -> None:
        self.stop_reason: StopReason | None = None
        self.count = 0
        self._raise_above = math.inf
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        # Only the main thread may set handlers; elsewhere the program's own stay in force.
        if threading.current_thread() is threading.main_thread():
            for number in self._REASONS:
                # Under nohup, SIGHUP stays ignored. Not so SIGINT, which shells ignore for what a script starts with
                # &: there it is sent on purpose.
                if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: it was set from C

    @contextlib.contextmanager
    def raising_after(self, count: int) -> Iterator[None]:
        """Within this block, more signals than this in all raise KeyboardInterrupt."""
        try:
            self._raise_above = count
            if self.count > count:
                raise KeyboardInterrupt
            yield
        finally:
            self._raise_above = math.inf

    @contextlib.contextmanager
    def held_back(self) -> Iterator[None]:
        """Raise what `raising_after` would raise within this block only at its end: it is not to stop halfway."""
        above, self._raise_above = self._raise_above, math.inf
        try:
            yield
        finally:
            self._raise_above = above
        if self.count > above:
            raise KeyboardInterrupt

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self.stop_reason = self.stop_reason or self._REASONS[number]
        if self.count > self._raise_above:
            raise KeyboardInterrupt
