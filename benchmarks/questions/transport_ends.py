"""Five ways of rows from a writer's process to a reader's, each with a writer's and a reader's end of the same form.

`ring` is Spreeze's own channel, `queue` the one that ablations compare it with. `pipe`, `unix` and `tcp` are streams
of the same bytes, without a word between two rows: all rows have one size. All are bounded, and a writer waits where
there is no room.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ablation.queue_channel import QueueChannel
from spreeze.adapt.defaults import FREE_RUNNING_ENVS, ring_capacity_rows
from spreeze.channels.transitions import RingChannel, RowLayout, Rows

TransportName = Literal["ring", "queue", "pipe", "unix", "tcp"]
TRANSPORTS: tuple[TransportName, ...] = ("ring", "queue", "pipe", "unix", "tcp")
BLOCK_ROWS = FREE_RUNNING_ENVS  # rows that a sampler writes at once: a step of all its environments
STREAM_BYTES = 2**20  # asked for as a stream's room: the most that Linux gives a pipe without privileges
MAX_RECEIVES = 16  # in one look, so that a fast writer does not keep the reader


def layout_of(row_bytes: int) -> RowLayout:
    """Return a layout of Spreeze's whose rows have this size: one or two actions, and the rest observations."""
    columns = row_bytes // 4 - 3  # reward, terminated, discount
    action_size = 2 - columns % 2
    return RowLayout((columns - action_size) // 2, action_size)


def open_channel(transport: TransportName, row_bytes: int) -> Channel:
    """Open one way for rows of this size, with the room that a run would choose."""
    layout = layout_of(row_bytes)
    capacity_rows = int(ring_capacity_rows(row_bytes).value)
    if transport == "ring":
        ring = RingChannel("transport")
        ring.allocate(layout, capacity_rows)
        return ring
    if transport == "queue":
        return RoomyQueue(max(8, capacity_rows // BLOCK_ROWS))
    return StreamChannel(transport, layout.width)


class RoomyQueue(QueueChannel):
    """Spreeze's queue, with room for as many rows as the ring has: 1,024 blocks of large rows would be gigabytes."""

    def __init__(self, blocks: int) -> None:
        self._queues = [multiprocessing.get_context("fork").Queue(blocks)]


class StreamChannel:
    def __init__(self, kind: Literal["pipe", "unix", "tcp"], width: int) -> None:
        self._kind, self._width = kind, width
        self._read_fd, self._write_fd = _open_pipe() if kind == "pipe" else _open_sockets(kind)
        os.set_blocking(self._read_fd, False)

    def writer(self) -> StreamWriter:
        """Open the writer's end, in its own process: with the reader's still open, a write would wait for ever."""
        os.close(self._read_fd)
        return StreamWriter(self._write_fd)

    def reader(self) -> StreamReader:
        return StreamReader(self._read_fd, self._width)

    def close(self) -> None:
        for fd in (self._read_fd, self._write_fd):
            os.close(fd)


class StreamWriter:
    """Writes as many bytes at once as the kernel takes, and waits there while it takes none."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, rows: Rows, stopping: Callable[[], bool]) -> float:  # noqa: ARG002 - the kernel wakes or ends it
        """Write all rows. What it waits for room is the kernel's, and not told."""
        unsent = rows.data.cast("B")
        while unsent:
            unsent = unsent[os.write(self._fd, unsent) :]
        return 0.0

    def close(self, deliver: bool) -> None:
        """Nothing to let go of: what was written is the kernel's."""


class StreamReader:
    """Receives into a buffer of its own and gives out the whole rows in it."""

    def __init__(self, fd: int, width: int) -> None:
        self._fd, self._row_bytes = fd, 4 * width
        buffer_rows = max(4, STREAM_BYTES // self._row_bytes)
        self._rows: NDArray[np.float32] = np.empty((buffer_rows, width), np.float32)
        self._bytes = self._rows.data.cast("B")
        self._filled = 0  # bytes at the beginning of the buffer: part of a row that has not come as a whole
        self.position = 0

    def read(self, until: int | None = None) -> Iterator[Rows]:  # noqa: ARG002 - as Spreeze's readers have it
        for _ in range(MAX_RECEIVES):
            try:
                received = os.readv(self._fd, [self._bytes[self._filled :]])
            except BlockingIOError:
                return
            was_full = self._filled + received == len(self._bytes)
            self._filled += received
            whole, rest = divmod(self._filled, self._row_bytes)
            if whole:
                yield self._rows[:whole]
                self.position += whole
                end = whole * self._row_bytes
                self._bytes[:rest] = bytes(self._bytes[end : end + rest])
                self._filled = rest
            if not was_full:
                return  # the kernel had no more: asking again would only cost an exception


def _open_pipe() -> tuple[int, int]:
    read_fd, write_fd = os.pipe()
    # Where less is allowed, and elsewhere than on Linux, it has the room that the system gives.
    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(write_fd, fcntl.F_SETPIPE_SZ, STREAM_BYTES)
    return read_fd, write_fd


def _open_sockets(kind: Literal["unix", "tcp"]) -> tuple[int, int]:
    if kind == "unix":
        reading, writing = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            writing = socket.create_connection(server.getsockname())
            reading, _ = server.accept()
        writing.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a small row must not wait for a larger packet
    writing.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_BYTES)
    reading.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, STREAM_BYTES)
    return reading.detach(), writing.detach()


Channel = RingChannel | RoomyQueue | StreamChannel
"""One writer's way to the reader, for a writer's process that is forked."""


def words_of(rows: Rows) -> NDArray[Any]:
    """Return the bits of rows as whole numbers, which can be counted and added without rounding."""
    return rows.view(np.uint32)
