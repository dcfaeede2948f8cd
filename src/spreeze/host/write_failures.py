"""Says once that something cannot be written, and once that it can again.

A disk that is full to the last byte takes one line and refuses the next: the trouble is over only when all has gone
well for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from spreeze.host.files import reason_of

QUIET_S = 3.0  # weights are written several times a second: what is still full shows within a fraction of that


class WriteFailures:
    """Whether something can be written. What its methods return is to be said; mostly that is nothing."""

    def __init__(self, what: str, meanwhile: str, now: Callable[[], float] = time.monotonic) -> None:
        """what: that is written. meanwhile: what happens as long as it cannot be."""
        self._what, self._meanwhile, self._now = what, meanwhile, now
        self._failed_at: float | None = None

    @property
    def is_there(self) -> bool:
        """Whether it was said that it began, and not yet that it is over."""
        return self._failed_at is not None

    def failed(self, error: Exception) -> str | None:
        """Note a failure; return the line that says so, if it is the first."""
        was_there = self.is_there
        self._failed_at = self._now()
        return None if was_there else f"{self._what} cannot be written ({reason_of(error)}): {self._meanwhile}"

    def worked(self) -> str | None:
        """Note that all could be written; return the line that says so, if it has lasted."""
        if self._failed_at is None or self._now() - self._failed_at < QUIET_S:
            return None
        self._failed_at = None
        return f"{self._what} can be written again"
