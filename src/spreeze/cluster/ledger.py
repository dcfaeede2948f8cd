"""How many rows the samplers of a machine have written in a run, in a file that outlives their agent.

An agent that is killed, or cut off, cannot report its last rows. The next one on its machine reads here how many
there were, so that those are counted as lost too.
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

_NUMBERS = struct.Struct("<qq")  # rows that were known of when the agent began, and its own


class Ledger:
    """The file of one machine and one run. Without one, or on a full disk, nothing is known of the agent before."""

    def __init__(self, path: Path | None, known: int) -> None:
        """known: rows of the machine that the head knew of when it sent for this agent."""
        self.before = 0
        """All rows of the machine until this agent, as the one before it has left them."""
        self._written = -1
        self._fd: int | None = None
        if path is not None:
            with contextlib.suppress(OSError, struct.error):
                self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                if content := os.pread(self._fd, _NUMBERS.size, 0):
                    self.before = sum(_NUMBERS.unpack(content))
        self._path, self._known = path, max(known, self.before)
        self.write(0)

    def write(self, written: int) -> None:
        """Keep how many rows this agent's samplers have written: 2 microseconds, if there are more than before."""
        if self._fd is not None and written != self._written:
            with contextlib.suppress(OSError):
                os.pwrite(self._fd, _NUMBERS.pack(self._known, written), 0)
                self._written = written

    def remove(self) -> None:
        """Forget them: the head has all rows."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
