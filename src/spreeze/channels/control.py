"""Control: what the supervisor tells all processes, and what they tell it apart from counters.

Stop flag and heartbeats are in shared memory: the supervisor writes the flag, each process its own heartbeat.
Messages go through one pipe a process, as JSON lines: written by that process, read by the supervisor.
Guaranteed: a stop is seen by everyone who looks; messages arrive whole and in order, also those of a process that
died after writing them.
When a pipe is full (64 KB): the writer waits; the supervisor reads several times a second.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.memory import SharedSegment

MAX_PROCESSES = 512


class ControlChannel:
    """The stop flag and the heartbeats of a run."""

    def __init__(self) -> None:
        self._segment = SharedSegment("control", 8 * (1 + MAX_PROCESSES))
        self._words: NDArray[np.float64] | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a child has to inherit."""
        return (self._segment.fd,)

    def close(self) -> None:
        """Let go of the descriptor."""
        self._segment.close()

    def _memory(self) -> NDArray[np.float64]:
        if self._words is None:
            self._words = self._segment.array(np.float64, (1 + MAX_PROCESSES,))
        return self._words

    def stop(self) -> None:
        """Ask every process to end."""
        self._memory()[0] = 1.0

    def stopping(self) -> bool:
        """Say whether processes were asked to end."""
        return bool(self._memory()[0])

    def beat(self, slot: int) -> None:
        """Say that the process with this slot is alive and making progress."""
        self._memory()[1 + slot] = time.monotonic()

    def silence_s(self, slot: int) -> float:
        """Return the seconds since the last heartbeat of a slot."""
        return time.monotonic() - float(self._memory()[1 + slot])

    def __getstate__(self) -> dict[str, Any]:
        return {"_segment": self._segment, "_words": None}


class MessageWriter:
    """A process's end of its pipe to the supervisor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def send(self, kind: str, **content: object) -> None:
        """Send one message. A supervisor that is gone is not an error here: the process is about to end too."""
        line = json.dumps({"kind": kind, **content}) + "\n"
        remaining = line.encode()
        try:
            while remaining:
                remaining = remaining[os.write(self._fd, remaining) :]
        except BrokenPipeError:
            pass


class MessageReader:
    """The supervisor's end of one process's pipe. Never blocks."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._partial = b""

    def read(self) -> list[dict[str, Any]]:
        """Return the messages that have arrived."""
        while True:
            try:
                chunk = os.read(self._fd, 65536)
            except BlockingIOError:
                break
            if not chunk:
                break
            self._partial += chunk
        *lines, self._partial = self._partial.split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._fd)
