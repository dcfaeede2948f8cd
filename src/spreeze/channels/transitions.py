"""Transitions, from samplers to the learner: one lossless channel for each sampler.

Writers: exactly one sampler per channel. Readers: one, the learner, or two where actor and critics learn apart.
While no reader is there, the supervisor may set their positions to the lowest one, for readers that are restarted.
Guaranteed: every row written is read once by each reader, whole, in the order of writing.
When it is full, which it is for the slowest reader: the writer waits, and reports for how long; nothing is dropped or
overwritten.

`RingChannel` is the only implementation here; `benchmarks/ablation/queue_channel.py` has one to compare it with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.memory import MakeSegment, SharedSegment, order_stores

Rows = NDArray[np.float32]  # (rows, row_width)

FULL_WAIT_S = 0.0005  # a ring of 16,384 rows holds about a second of experience: polling this often costs nothing


@dataclass(frozen=True)
class RowLayout:
    """Where each field of a transition stands in its row of float32 columns.

    observation | action | reward | next observation | terminated | discount
    """

    observation_size: int
    action_size: int

    @cached_property
    def observation(self) -> slice:
        """Columns of the observation the action was chosen for."""
        return slice(0, self.observation_size)

    @cached_property
    def action(self) -> slice:
        """Columns of the action, in [-1, 1]."""
        return slice(self.observation_size, self.observation_size + self.action_size)

    @cached_property
    def reward(self) -> int:
        """Column of the reward."""
        return self.observation_size + self.action_size

    @cached_property
    def next_observation(self) -> slice:
        """Columns of the observation that followed, which is the true last one where an episode ended."""
        return slice(self.reward + 1, self.reward + 1 + self.observation_size)

    @cached_property
    def terminated(self) -> int:
        """Column that is 1 where the episode ended for good, so that nothing is bootstrapped from."""
        return self.reward + 1 + self.observation_size

    @cached_property
    def discount(self) -> int:
        """Column of the discount of what comes after this row."""
        return self.terminated + 1

    @cached_property
    def width(self) -> int:
        """Columns of one row."""
        return self.discount + 1

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return 4 * self.width

    def name_of(self, column: int) -> str:
        """Return the name of the field that a column belongs to."""
        for name in ("observation", "action", "next_observation"):
            columns: slice = getattr(self, name)
            if columns.start <= column < columns.stop:
                return name.replace("_", " ")
        return {self.reward: "reward", self.terminated: "terminated", self.discount: "discount"}[column]


class TransitionWriter(Protocol):
    """The sampler's end."""

    def write(self, rows: Rows, stopping: Callable[[], bool]) -> float:
        """Write all rows; return the seconds spent waiting for room. Gives up once `stopping()` is true."""
        ...

    def close(self, deliver: bool) -> None:
        """Let go. deliver: what was written must still reach a reader that continues; else nothing is waited for."""
        ...


class TransitionReader(Protocol):
    """The learner's end."""

    @property
    def position(self) -> int:
        """How many rows were ever read."""
        ...

    def read(self, until: int | None = None) -> Iterator[Rows]:
        """Yield what is there now in blocks; a block is valid, and counts as read, until the next is asked for.

        until: a position to stop at.
        """
        ...


class TransitionChannel(Protocol):
    """Created by the supervisor, sized once rows are known, and sent to one sampler and to the learner."""

    survives_its_reader: ClassVar[bool]
    """Whether a reader can continue where another was killed."""

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a child has to inherit."""
        ...

    def allocate(self, layout: RowLayout, capacity_rows: int) -> None:
        """Make room for this many rows."""
        ...

    def writer(self) -> TransitionWriter:
        """Open the sampler's end."""
        ...

    def reader(self, index: int = 0) -> TransitionReader:
        """Open a learner's end."""
        ...

    def is_empty(self) -> bool:
        """Return whether all that was written has been read by all, as far as its owner knows."""
        ...

    def fill(self) -> float | None:
        """Return which share of its room is taken, for the slowest reader; None where its owner does not know."""
        ...

    def align_readers(self) -> None:
        """Let all readers continue with the same row, while none reads: the first that one of them has not read."""
        ...

    def written(self) -> int | None:
        """Return how many rows were ever written, all of them whole; None where its owner does not know.

        Where it can, a writer may be killed at any moment, and another continue from there.
        """
        ...

    def close(self) -> None:
        """Let go of the descriptors."""
        ...


# --- shared memory ---------------------------------------------------------------------------------------------

# Head and tails are on cache lines of their own: the writer's store does not evict what a reader polls.
_LINE_BYTES = 64


class RingChannel:
    """A ring of rows in shared memory, with monotonic 64-bit counters and no lock: a head, and a tail per reader."""

    survives_its_reader: ClassVar[bool] = True

    def __init__(self, name: str, readers: int = 1, make_segment: MakeSegment = SharedSegment) -> None:
        self._segment = make_segment(name, 0)
        self._readers = readers
        self._width = 0
        self._capacity = 0

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a child has to inherit."""
        return self._segment.descriptors

    def allocate(self, layout: RowLayout, capacity_rows: int) -> None:
        """Make room for this many rows."""
        self._width, self._capacity = layout.width, capacity_rows
        self._segment.allocate((1 + self._readers) * _LINE_BYTES + capacity_rows * layout.row_bytes)

    def writer(self) -> RingWriter:
        """Open the sampler's end."""
        return RingWriter(*self._arrays())

    def reader(self, index: int = 0) -> RingReader:
        """Open a learner's end."""
        head, tails, ring = self._arrays()
        return RingReader(head, tails[index : index + 1], ring)

    def is_empty(self) -> bool:
        """Return whether all that was written has been read by all."""
        return self._unread() == 0

    def fill(self) -> float | None:
        """Return which share of its room is taken, for the slowest reader."""
        return min(1.0, self._unread() / self._capacity)  # the writer may write meanwhile

    def align_readers(self) -> None:
        """Let all readers continue with the same row."""
        if self._capacity:
            tails = self._counters()[1:]
            tails[:] = tails.min()

    def written(self) -> int | None:
        """Return how many rows were ever written: what a writer that was killed has begun lies beyond the head."""
        return int(self._counters()[0])

    def close(self) -> None:
        """Let go of the descriptor."""
        self._segment.close()

    def _unread(self) -> int:
        # Tails first: they never pass a head that is read later.
        counters = self._counters()
        tail = int(counters[1:].min())
        return int(counters[0]) - tail

    def _counters(self) -> NDArray[np.int64]:
        counters: NDArray[np.int64] = self._segment.array(np.int64, (1 + self._readers, _LINE_BYTES // 8))[:, 0]
        return counters

    def _arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Rows]:
        counters, lines = self._counters(), 1 + self._readers
        rows = self._segment.array(np.float32, (self._capacity, self._width), lines * _LINE_BYTES)
        return counters[:1], counters[1:], rows


class RingWriter:
    """Rows first, then the head: a reader that sees the new head sees the rows."""

    def __init__(self, head: NDArray[np.int64], tails: NDArray[np.int64], ring: Rows) -> None:
        self._head, self._tails, self._ring = head, tails, ring
        # Only this process moves the head, and tails only rise: looking at the readers' cache lines is needed only
        # when the ring seems full.
        self._at, self._seen_tail = int(head[0]), int(tails.min())

    def write(self, rows: Rows, stopping: Callable[[], bool]) -> float:
        """Write all rows; return the seconds spent waiting for room."""
        waited_s = 0.0
        capacity = len(self._ring)
        while len(rows):
            room = capacity - (self._at - self._seen_tail)
            if room < len(rows):
                self._seen_tail = int(self._tails.min())
                room = capacity - (self._at - self._seen_tail)
            if room == 0:
                if stopping():
                    break
                # The learner is behind. Sleeping, not spinning: the core it needs may be this one.
                started = time.monotonic()
                time.sleep(FULL_WAIT_S)
                waited_s += time.monotonic() - started
                continue
            at = self._at % capacity
            count = min(room, capacity - at, len(rows))
            self._ring[at : at + count] = rows[:count]
            order_stores()
            self._at += count
            self._head[0] = self._at
            rows = rows[count:]
        return waited_s

    def close(self, deliver: bool) -> None:
        """Nothing to let go of: rows already written stay readable."""


class RingReader:
    """Rows are copied out by the caller first, then the tail moves and the writer may reuse their place."""

    def __init__(self, head: NDArray[np.int64], tail: NDArray[np.int64], ring: Rows) -> None:
        self._head, self._tail, self._ring = head, tail, ring

    @property
    def position(self) -> int:
        """How many rows were ever read."""
        return int(self._tail[0])

    def read(self, until: int | None = None) -> Iterator[Rows]:
        """Yield views of the rows that are there now: at most two blocks, around the end of the ring."""
        capacity = len(self._ring)
        tail, head = int(self._tail[0]), int(self._head[0])
        head = head if until is None else min(head, until)
        order_stores()
        while tail < head:
            at = tail % capacity
            count = min(head - tail, capacity - at)
            yield self._ring[at : at + count]
            tail += count
            order_stores()
            self._tail[0] = tail
