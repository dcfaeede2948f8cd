"""Parameters, between the two sides of a split learner: a mailbox in each direction, in shared memory.

Writers: one per mailbox, the side whose parameters it carries. Readers: one, the other side. The supervisor
empties it before it restarts the sides.
Guaranteed: what is read is whole, of one moment, and never older than what was read before. A message that is
overwritten before it was read is lost, which is intended: only the newest counts.
When it is full: cannot be; a message overwrites the one before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.memory import MakeSegment, SharedSegment, order_stores

MAX_NUMBERS = 512
"""Numbers that a message may carry with its parameters: rows taken of each ring, so that both sides take the same."""

_HEADER = np.dtype(
    [
        # A seqlock: odd while a message is written, twice the number of messages otherwise.
        ("sequence", "i8"),
        ("updates", "i8"),
        ("parameters", "i8"),
        ("count", "i8"),
        ("numbers", "i8", (MAX_NUMBERS,)),
    ]
)
_RETRY_S = 0.00005  # a message of a megabyte is written in about this time


class ParameterMessage(NamedTuple):
    """Parameters as they were at one moment."""

    updates: int
    """Updates of the sender that are in them."""
    parameters: NDArray[np.float32]
    """Valid until the next message is asked for."""
    numbers: tuple[int, ...]


class MailboxChannel:
    """Room for one message."""

    def __init__(self, name: str, make_segment: MakeSegment = SharedSegment) -> None:
        self._segment = make_segment(name, 0)
        self._capacity = 0

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a child has to inherit."""
        return self._segment.descriptors

    def allocate(self, parameter_count: int) -> None:
        """Make room for at most this many parameters."""
        self._capacity = parameter_count
        self._segment.allocate(_HEADER.itemsize + 4 * parameter_count)

    def writer(self) -> MailboxWriter:
        """Open the sender's end."""
        return MailboxWriter(*self._arrays())

    def reader(self, into: NDArray[np.float32] | None = None) -> MailboxReader:
        """Open the receiver's end. into: where parameters are copied to, each message over the one before."""
        return MailboxReader(*self._arrays(), np.empty(self._capacity, np.float32) if into is None else into)

    def repair(self) -> None:
        """Empty the mailbox, while nobody writes or reads: a writer that was killed may have left half a message."""
        if self._capacity:
            self._arrays()[0]["sequence"] = 0

    def close(self) -> None:
        """Close the descriptor."""
        self._segment.close()

    def _arrays(self) -> tuple[NDArray[Any], NDArray[np.float32]]:
        header = self._segment.array(_HEADER, (1,))
        return header, self._segment.array(np.float32, (self._capacity,), _HEADER.itemsize)


class MailboxWriter:
    """Makes the sequence odd first and even last: between two readings of one even number a message is whole."""

    def __init__(self, header: NDArray[Any], parameters: NDArray[np.float32]) -> None:
        self._header, self._parameters = header, parameters

    def send(self, parameters: NDArray[np.float32], updates: int, numbers: tuple[int, ...] = ()) -> None:
        """Replace what is in the mailbox."""
        sequence = int(self._header["sequence"][0])
        self._header["sequence"] = sequence + 1
        order_stores()
        self._parameters[: len(parameters)] = parameters
        self._header["updates"] = updates
        self._header["parameters"] = len(parameters)
        self._header["count"] = len(numbers)
        self._header["numbers"][0, : len(numbers)] = numbers
        order_stores()
        self._header["sequence"] = sequence + 2


class MailboxReader:
    """Copies a message out, and again if it was overwritten meanwhile."""

    def __init__(self, header: NDArray[Any], parameters: NDArray[np.float32], into: NDArray[np.float32]) -> None:
        self._header, self._parameters, self._into = header, parameters, into
        self._seen = 0

    def newest(self) -> ParameterMessage | None:
        """Return the message if there is one that was not read yet."""
        while True:
            before = int(self._header["sequence"][0])
            if before == self._seen:
                return None
            if before % 2 == 0:
                order_stores()
                message = self._copy()
                order_stores()
                if int(self._header["sequence"][0]) == before:
                    self._seen = before
                    return message
            time.sleep(_RETRY_S)  # for the writer, which may need this core

    def wait(self, stopping: Callable[[], bool]) -> ParameterMessage | None:
        """Wait for the next message; None if the run is stopped before it comes."""
        while not stopping():
            message = self.newest()
            if message is not None:
                return message
            time.sleep(_RETRY_S)
        return None

    def _copy(self) -> ParameterMessage:
        header = self._header[0].copy()
        parameters = self._into[: int(header["parameters"])]
        parameters[:] = self._parameters[: len(parameters)]
        return ParameterMessage(
            int(header["updates"]),
            parameters,
            tuple(header["numbers"][: int(header["count"])].tolist()),
        )
