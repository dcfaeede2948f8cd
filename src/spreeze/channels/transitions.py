"""Transitions, from samplers to the learner: one lossless channel for each sampler.

Writers: exactly one sampler per channel. Readers: one, the learner, or two where actor and critics learn apart.
While no reader is there, the supervisor may set their positions to the lowest one, for readers that are restarted.
Guaranteed: every row written is read once by each reader, whole, in the order of writing.
When it is full, which it is for the slowest reader: the writer waits, and reports for how long; nothing is dropped or
overwritten.

`RingChannel` is the only implementation here; `benchmarks/ablation/queue_channel.py` has one to compare it with.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.memory import MakeSegment, SharedSegment, order_stores
from spreeze.channels.spaces import ActionType, Spaces, images_of

Rows = NDArray[np.float32]
"""Transitions as words of four bytes, (rows, width). What a word holds, its `RowLayout` says: a number of float32, an
integer, or four bytes of an image. Words are copied as they are, and vectors need no view of another type."""

FULL_WAIT_S = 0.0005  # a ring of 16,384 rows holds about a second of experience: polling this often costs nothing


WORD = 4
OF_FIRST_STEP = ("observation", "action")


@dataclass(frozen=True)
class RowLayout:
    """The type of a transition, and where each field stands in its row of words.

    observation | action | reward | next observation | terminated | discount, all float32, for vectors and continuous
    actions. What has another type follows: the action if it is discrete, then images.
    """

    observation_size: int
    """Length of the vector of an observation."""
    action_size: int
    action_type: ActionType = "float32"
    """int32: the index of the value of each component."""
    images: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Name and shape of each uint8 image of an observation."""

    @classmethod
    def of(cls, spaces: Spaces) -> RowLayout:
        """Return the layout of an environment's transitions."""
        images = tuple(images_of(spaces.observation).items())
        return cls(spaces.observation_size, spaces.action_size, spaces.action_type, images)

    @cached_property
    def dtype(self) -> np.dtype[np.void]:
        """The structured type of a row: each field with its own type, beginning at a word."""
        observation = (np.dtype(np.float32), (self.observation_size,))
        action = (np.dtype(self.action_type), (self.action_size,))
        number: tuple[np.dtype[Any], tuple[int, ...]] = (np.dtype(np.float32), ())
        is_float = self.action_type == "float32"
        fields = {
            "observation": observation,
            **({"action": action} if is_float else {}),
            "reward": number,
            "next_observation": observation,
            "terminated": number,
            "discount": number,
            **({} if is_float else {"action": action}),
        }
        for name, shape in self.images:
            fields |= {
                f"{field}.{name}": (np.dtype(np.uint8), shape) for field in ("observation", "next_observation")
            }
        bytes_of = [kind.itemsize * math.prod(shape) for kind, shape in fields.values()]
        ends = list(accumulate(-(-count // WORD) * WORD for count in bytes_of))
        formats = [np.dtype((kind, shape)) for kind, shape in fields.values()]
        return np.dtype({"names": list(fields), "formats": formats, "offsets": [0, *ends[:-1]], "itemsize": ends[-1]})

    def records(self, rows: Rows) -> NDArray[np.void]:
        """Return a view of rows by the names and types of their fields."""
        return rows.view(self.dtype)[:, 0]

    def words(self, field: str) -> slice[int, int, None]:
        """Return which words of a row a field takes."""
        assert self.dtype.fields is not None, "a row has fields"
        kind, offset = self.dtype.fields[field][:2]
        begin = int(offset) // WORD
        return slice(begin, begin - (-kind.itemsize // WORD))

    @cached_property
    def observation(self) -> slice:
        """Words of the vector of the observation that the action was chosen for."""
        return self.words("observation")

    @cached_property
    def action(self) -> slice:
        """Words of the action: in [-1, 1], or int32 where it is discrete."""
        return self.words("action")

    @cached_property
    def reward(self) -> int:
        """Word of the reward."""
        return self.words("reward").start

    @cached_property
    def next_observation(self) -> slice:
        """Words of the observation that followed, which is the true last one where an episode ended."""
        return self.words("next_observation")

    @cached_property
    def terminated(self) -> int:
        """Word that is 1 where the episode ended for good, so that nothing is bootstrapped from."""
        return self.words("terminated").start

    @cached_property
    def discount(self) -> int:
        """Word of the discount of what comes after this row."""
        return self.words("discount").start

    @cached_property
    def numbers(self) -> slice:
        """Words that are float32: the first ones, and for vectors with continuous actions all."""
        count = 2 * self.observation_size + len(("reward", "terminated", "discount"))
        return slice(0, count + (self.action_size if self.action_type == "float32" else 0))

    @cached_property
    def of_first_step(self) -> tuple[slice, ...]:
        """Words that a transition over several steps has of its first one: the observation and the action."""
        pieces: list[slice[int, int, None]] = []
        for name in self.dtype.names or ():
            if name.partition(".")[0] not in OF_FIRST_STEP:
                continue
            words = self.words(name)
            if pieces and pieces[-1].stop == words.start:  # neighbours are copied together
                words = slice(pieces.pop().start, words.stop)
            pieces.append(words)
        return tuple(pieces)

    @cached_property
    def is_all_numbers(self) -> bool:
        """Whether all words are float32."""
        return bool(self.numbers.stop == self.width)

    @cached_property
    def width(self) -> int:
        """Words of one row."""
        return self.row_bytes // WORD

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.dtype.itemsize

    def name_of(self, word: int) -> str:
        """Return the name of the field that a word belongs to."""
        for name in self.dtype.names or ():
            words = self.words(name)
            if words.start <= word < words.stop:
                return name.replace("_", " ")
        raise IndexError(f"a row has {self.width} words, and no word {word}")


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
        while len(rows := rows[self.write_what_fits(rows) :]):
            if stopping():
                break
            # The learner is behind. Sleeping, not spinning: the core it needs may be this one.
            started = time.monotonic()
            time.sleep(FULL_WAIT_S)
            waited_s += time.monotonic() - started
        return waited_s

    def write_what_fits(self, rows: Rows) -> int:
        """Write as many rows as there is room for now; return how many."""
        capacity, written = len(self._ring), 0
        while written < len(rows):
            room = capacity - (self._at - self._seen_tail)
            if room < len(rows) - written:
                self._seen_tail = int(self._tails.min())
                room = capacity - (self._at - self._seen_tail)
            if room == 0:
                break
            at = self._at % capacity
            count = min(room, capacity - at, len(rows) - written)
            self._ring[at : at + count] = rows[written : written + count]
            order_stores()
            self._at += count
            self._head[0] = self._at
            written += count
        return written

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
