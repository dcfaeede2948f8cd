"""Control: the supervisor's orders to all processes, and their heartbeats and messages to it.

Stop flag, orders and heartbeats are in shared memory: the supervisor writes the flag and the orders, each process
its own heartbeat. An order is a setting that may change during a run; the processes that it concerns read it in
every turn of their loop. Messages go through one pipe per process, as JSON lines: the process writes, the
supervisor reads.
Guaranteed: a stop or an order is seen by every process that reads it, each number whole; messages arrive whole and
in order, also those of a process that died after writing them.
When a pipe is full (64 KB): the writer waits; the supervisor reads 20 times per second, more often while it waits for
the processes to end. Only viewer and dashboard are not read any more once they are asked to end, the last of all.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.memory import MakeSegment, SharedSegment, order_stores
from spreeze.host.json_text import json_text

MAX_PROCESSES = 512

# The layout, in words of 8 bytes; heartbeats and requests to leave have one for each process.
_STOP, _BATCH_SIZE, _LEARNER_THREADS, _RINGS, _ENVS_AT_WORK, _CHECKPOINT, _LAST_CHECKPOINT, _OLDEST_ROW = range(8)
_EVALUATE_UNTIL, _LAST_VERSION, _BEATS = 8, 9, 10
_LEAVING = _BEATS + MAX_PROCESSES
_WORDS = _LEAVING + MAX_PROCESSES


class ControlChannel:
    """The stop flag, the orders and the heartbeats of a run."""

    def __init__(self, make_segment: MakeSegment = SharedSegment) -> None:
        self._segment = make_segment("control", 8 * _WORDS)
        self._words: NDArray[np.float64] | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a child has to inherit."""
        return self._segment.descriptors

    def close(self) -> None:
        """Close the descriptor."""
        self._segment.close()

    def _memory(self) -> NDArray[np.float64]:
        if self._words is None:
            self._words = self._segment.array(np.float64, (_WORDS,))
        return self._words

    def stop(self) -> None:
        """Ask every process to end."""
        self._memory()[_STOP] = 1.0

    def stopping(self) -> bool:
        """Return whether all processes were asked to end."""
        return bool(self._memory()[_STOP])

    def dismiss(self, slot: int) -> None:
        """Ask one process to end, while the others continue."""
        self._memory()[_LEAVING + slot] = 1.0

    def enlist(self, slot: int) -> None:
        """Give a slot to a new process."""
        self._memory()[_LEAVING + slot] = 0.0
        self.beat(slot)  # its silence is counted from here

    def dismissed(self, slot: int) -> bool:
        """Return whether this process was asked to end, alone or with all others."""
        words = self._memory()
        return bool(words[_STOP] or words[_LEAVING + slot])

    def dismissed_alone(self, slot: int) -> bool:
        """Return whether this process alone was asked to end: one that shows the run's end outlives the others."""
        return bool(self._memory()[_LEAVING + slot])

    def order(self, batch_size: int, learner_threads: int, rings: int, envs_at_work: int) -> None:
        """Order batch size, learner threads (0: its own choice) and how many channels to read.

        envs_at_work: environments of all samplers together, for the ratio between samplers and learner.
        """
        self._memory()[_BATCH_SIZE:_CHECKPOINT] = (batch_size, learner_threads, rings, envs_at_work)

    @property
    def batch_size(self) -> int:
        """The batch size that is ordered."""
        return int(self._memory()[_BATCH_SIZE])

    @property
    def learner_threads(self) -> int:
        """The learner threads that are ordered; 0 leaves the number to the learner."""
        return int(self._memory()[_LEARNER_THREADS])

    @property
    def rings(self) -> int:
        """How many channels have ever had a writer: those with a smaller index than this."""
        return int(self._memory()[_RINGS])

    @property
    def envs_at_work(self) -> int:
        """Environments of all samplers together."""
        return int(self._memory()[_ENVS_AT_WORK])

    def order_checkpoint(self, number: int, oldest_row: int, at_end: bool = False) -> None:
        """Ask the learners for a checkpoint, now or when they end.

        oldest_row: the first row of the replay on disk that valid checkpoints need.
        """
        words = self._memory()
        words[_OLDEST_ROW] = oldest_row
        order_stores()
        words[_LAST_CHECKPOINT if at_end else _CHECKPOINT] = number

    @property
    def checkpoint(self) -> tuple[int, int]:
        """The number of the checkpoint that is ordered, 0 for none, and the oldest row that earlier ones need."""
        words = self._memory()
        return int(words[_CHECKPOINT]), int(words[_OLDEST_ROW])

    @property
    def last_checkpoint(self) -> tuple[int, int]:
        """The same for the checkpoint that learners are to write when they end."""
        words = self._memory()
        return int(words[_LAST_CHECKPOINT]), int(words[_OLDEST_ROW])

    def order_last_evaluation(self, until: float) -> None:
        """Ask the evaluator to score the last version when it ends, until then on the clock of `time.monotonic`."""
        self._memory()[_EVALUATE_UNTIL] = until

    @property
    def evaluate_until(self) -> float:
        """Until when the evaluator may score the last version; 0 if it is to end at once."""
        return float(self._memory()[_EVALUATE_UNTIL])

    def announce_last_version(self) -> None:
        """Record that no version of the weights follows the newest one."""
        self._memory()[_LAST_VERSION] = 1.0

    @property
    def has_last_version(self) -> bool:
        """Whether the newest version of the weights is the last one of the run."""
        return bool(self._memory()[_LAST_VERSION])

    def beat(self, slot: int) -> None:
        """Record that the process with this slot is alive and making progress."""
        self._memory()[_BEATS + slot] = time.monotonic()

    def silence_s(self, slot: int) -> float:
        """Return the seconds since the last heartbeat of a slot."""
        return time.monotonic() - float(self._memory()[_BEATS + slot])

    def __getstate__(self) -> dict[str, Any]:
        return {"_segment": self._segment, "_words": None}


class RecordEvent(Protocol):
    """Records an event of the run."""

    def __call__(self, kind: str, reason: str, **details: object) -> None:
        """Add a line to `events.jsonl`: what kind of event, why, and further fields."""
        ...


class Messages(Protocol):
    """A process's end of its messages to the supervisor."""

    def send(self, kind: str, **content: object) -> None:
        """Send one message."""
        ...

    def record_event(self, kind: str, reason: str, **details: object) -> None:
        """Ask the supervisor to write an event into `events.jsonl`."""
        ...


class MessageWriter:
    """A process's end of its pipe to the supervisor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def send(self, kind: str, **content: object) -> None:
        """Send one message. A supervisor that has ended is not an error: this process is about to end too."""
        line = json_text({"kind": kind, **content}) + "\n"
        remaining = line.encode()
        try:
            while remaining:
                remaining = remaining[os.write(self._fd, remaining) :]
        except BrokenPipeError:
            pass

    def record_event(self, kind: str, reason: str, **details: object) -> None:
        """Ask the supervisor to write an event into `events.jsonl`."""
        self.send("event", event=kind, reason=reason, **details)


class MessageList:
    """Messages in one process: they wait here until they are taken."""

    def __init__(self) -> None:
        self._waiting: list[dict[str, Any]] = []

    def send(self, kind: str, **content: object) -> None:
        """Send one message."""
        self._waiting.append({"kind": kind, **content})

    def record_event(self, kind: str, reason: str, **details: object) -> None:
        """Ask the supervisor to write an event into `events.jsonl`."""
        self.send("event", event=kind, reason=reason, **details)

    def take(self) -> list[dict[str, Any]]:
        """Return the messages that have been sent since the last time."""
        taken, self._waiting = self._waiting, []
        return taken

    def __bool__(self) -> bool:
        return bool(self._waiting)


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
