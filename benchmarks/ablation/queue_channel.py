"""Transitions through bounded `multiprocessing` queues, one a reader, to measure what the ring is worth.

It promises what `TransitionChannel` does, but its owner cannot tell what is in it, and a process that is killed may
leave half a block in a pipe, or a lock taken: that ends the run.
"""

from __future__ import annotations

import multiprocessing.context
import multiprocessing.popen_spawn_posix
import multiprocessing.reduction
import pickle
import queue
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from spreeze.channels.transitions import RowLayout, Rows

_QUEUE_BLOCKS = 1024  # under way in one queue; a block is one step of all environments of a sampler
Queue = Any  # multiprocessing.queues.Queue[Rows]


class QueueChannel:
    survives_its_reader: ClassVar[bool] = False

    def __init__(self, _name: str, readers: int = 1) -> None:
        self._queues = [multiprocessing.get_context("spawn").Queue(_QUEUE_BLOCKS) for _ in range(readers)]
        self._pickled, self.descriptors = _pickle_for_child(self._queues)

    def allocate(self, layout: RowLayout, capacity_rows: int) -> None:
        """Nothing to allocate: a queue is bounded in blocks, and the pipe below it has its own size."""

    def writer(self) -> QueueWriter:
        return QueueWriter(self._queues)

    def reader(self, index: int = 0) -> QueueReader:
        return QueueReader(self._queues[index])

    def is_empty(self) -> bool:
        return all(transitions.empty() for transitions in self._queues)

    def fill(self) -> float | None:
        return None  # what is in the pipe below a queue does not count, and not all systems count the rest

    def align_readers(self) -> None:
        """Not possible: nobody can tell where readers of queues stand."""

    def written(self) -> int | None:
        return None

    def close(self) -> None:
        for transitions in self._queues:
            transitions.cancel_join_thread()
            transitions.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"_pickled": self._pickled, "descriptors": self.descriptors}

    def __setstate__(self, state: dict[str, Any]) -> None:
        queues = pickle.loads(state["_pickled"])  # noqa: S301 (of the process that started this one)
        self.__dict__.update(state, _queues=queues)


class QueueWriter:
    def __init__(self, queues: list[Queue]) -> None:
        self._queues = queues

    def write(self, rows: Rows, stopping: Callable[[], bool]) -> float:
        block = rows.copy()  # the queue pickles it later, in its feeder thread
        full_since: float | None = None
        for transitions in self._queues:
            while not stopping():
                try:
                    transitions.put(block, block=full_since is not None, timeout=0.1)
                    break
                except queue.Full:
                    full_since = full_since or time.monotonic()
        return 0.0 if full_since is None else time.monotonic() - full_since

    def close(self, deliver: bool) -> None:
        """Wait for the feeder thread only if the reader is still there: otherwise it would wait for ever."""
        for transitions in self._queues:
            if deliver:
                transitions.close()
                transitions.join_thread()
            else:
                transitions.cancel_join_thread()


class QueueReader:
    def __init__(self, transitions: Queue) -> None:
        self._queue = transitions
        self.position = 0

    def read(self, until: int | None = None) -> Iterator[Rows]:
        assert until is None, "a queue cannot stop at a position"
        for _ in range(_QUEUE_BLOCKS):  # bounded: a fast sampler would otherwise keep the learner here
            try:
                rows = self._queue.get_nowait()
            except queue.Empty:
                return
            yield rows
            self.position += len(rows)


def _pickle_for_child(shared: Any) -> tuple[bytes, tuple[int, ...]]:
    """Pickle what `multiprocessing` gives only to children that it starts itself; return its descriptors too."""
    child = object.__new__(multiprocessing.popen_spawn_posix.Popen)  # the child it asks for, without starting one
    child._fds = []
    multiprocessing.context.set_spawning_popen(child)
    try:
        return bytes(multiprocessing.reduction.ForkingPickler.dumps(shared)), tuple(child._fds)
    finally:
        multiprocessing.context.set_spawning_popen(None)
