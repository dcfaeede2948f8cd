"""Reports once that something cannot be written, and once that it can be written again.

A disk that is full to the last byte takes one line and refuses the next: the failure is over only when every write
has succeeded for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from spreeze.host.files import reason_of

QUIET_S = 3.0  # weights are written several times per second, so a full disk shows sooner


class WriteFailures:
    """Whether something can be written. `failed` and `succeeded` return a message where there is a new one."""

    def __init__(self, what: str, meanwhile: str, now: Callable[[], float] = time.monotonic) -> None:
        """what: what is written. meanwhile: what happens as long as it cannot be written."""
        self._what, self._meanwhile, self._now = what, meanwhile, now
        self._failed_at: float | None = None

    @property
    def is_failing(self) -> bool:
        """Whether a failure was reported, and not yet its end."""
        return self._failed_at is not None

    def failed(self, error: Exception) -> str | None:
        """Count a failed write; return the message about it if it is the first."""
        was_failing = self.is_failing
        self._failed_at = self._now()
        return None if was_failing else f"{self._what} cannot be written ({reason_of(error)}): {self._meanwhile}"

    def succeeded(self) -> str | None:
        """Count a successful write; return the message about it if writes have succeeded for QUIET_S again."""
        if self._failed_at is None or self._now() - self._failed_at < QUIET_S:
            return None
        self._failed_at = None
        return f"{self._what} can be written again"
