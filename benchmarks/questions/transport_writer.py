"""One writer of `transports.py`, in a process of its own: writes rows as it is told, and says what it has written.

In: on standard input, pickled, a channel with the bytes of a row, and then one `Order` after the other. Out: on
standard output, a line of JSON for each.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from transport_ends import words_of

from spreeze.channels.transitions import Rows, TransitionWriter

SEQUENCE, STAMP_HIGH, STAMP_LOW = 0, 1, 2  # columns of a row that are not noise


@dataclass(frozen=True)
class Order:
    """What to write: for so many seconds, blocks of so many rows, flat out or at a rate."""

    seconds: float
    rows_a_write: int
    rows_hz: float | None
    """Rows a second, each with the moment of its writing; None: as fast as it goes."""
    first_after_s: float = 0.0
    """So that writers at a rate do not all write at the same moment."""


class Sender:
    """Writes rows of noise that are numbered from 0 on, and adds up all their bits."""

    def __init__(self, writer: TransitionWriter, row_bytes: int, seed: int) -> None:
        self._writer, self._width = writer, row_bytes // 4
        self._random, self._parent = np.random.default_rng(seed), os.getppid()
        self.rows = self.checksum = 0

    def obey(self, order: Order) -> None:
        """Write what is ordered, to its end."""
        self.rows = self.checksum = 0
        # Noise as float32 values, not as any bits: all transports see what they would see in a run.
        block = self._random.random((order.rows_a_write, self._width), np.float32)
        if order.rows_hz is None:
            self._send_flat_out(block, order.seconds)
        else:
            self._send_at_rate(block, order, order.rows_hz)

    def _send_flat_out(self, block: Rows, seconds: float) -> None:
        words, order_in_block = words_of(block), np.arange(len(block), dtype=np.uint32)
        words[:, SEQUENCE] = 0
        noise, blocks, ends_at = int(words.sum(dtype=np.uint64)), 0, time.monotonic() + seconds
        while time.monotonic() < ends_at:
            np.add(order_in_block, self.rows, out=words[:, SEQUENCE])
            self._writer.write(block, self._is_left_alone)
            self.rows += len(block)
            blocks += 1
        self.checksum = noise * blocks + self.rows * (self.rows - 1) // 2

    def _send_at_rate(self, block: Rows, order: Order, rows_hz: float) -> None:
        words, began_at = words_of(block), time.monotonic() + order.first_after_s
        for i in range(max(1, int(order.seconds * rows_hz))):
            time.sleep(max(0.0, began_at + i / rows_hz - time.monotonic()))
            now_ns = time.monotonic_ns()
            words[0, SEQUENCE], words[0, STAMP_HIGH], words[0, STAMP_LOW] = i, now_ns >> 32, now_ns & 0xFFFFFFFF
            self._writer.write(block, self._is_left_alone)
            self.rows += 1
            self.checksum += int(words.sum(dtype=np.uint64))

    def _is_left_alone(self) -> bool:
        return os.getppid() != self._parent


def serve(orders: BinaryIO) -> None:
    """Obey orders until there are no more."""
    channel, row_bytes, seed = pickle.load(orders)
    writer = channel.writer()
    sender = Sender(writer, row_bytes, seed)
    print(json.dumps({"ready": True}), flush=True)
    while (order := pickle.load(orders)) is not None:
        cpu_before_s = time.process_time()
        sender.obey(order)
        print(json.dumps({"rows": sender.rows, "checksum": sender.checksum % 2**32}), flush=True)
        pickle.load(orders)  # all of it has been read: a queue's own thread has nothing more to do either
        print(json.dumps({"cpu_s": time.process_time() - cpu_before_s}), flush=True)
    writer.close(deliver=False)


if __name__ == "__main__":
    serve(sys.stdin.buffer)
