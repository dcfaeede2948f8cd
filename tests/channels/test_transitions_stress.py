"""Several processes write millions of rows through small rings: none may be lost, torn, doubled or reordered."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.transitions import RingChannel, RowLayout, Rows

WRITERS = 4
ROWS_PER_WRITER = 2_500_000
CAPACITY_ROWS = 1024  # each writer goes round its ring more than two thousand times
LAYOUT = RowLayout(observation_size=5, action_size=3)
GUARD_S = 300.0  # ends a run in which no more rows come; nothing is asserted about time

# A row: writer, sequence number in two columns (float32 counts exactly only to 2^24), noise, checksum.
WRITER_PROGRAM = """
import pickle, sys
import numpy as np
channel, writer_id, row_count, width, capacity_rows = pickle.load(sys.stdin.buffer)
rng = np.random.default_rng(writer_id)
noise = rng.integers(0, 4096, (2 * capacity_rows, width)).astype(np.float32)
# Mostly a step of some environments; one block in ten may be larger than the ring.
few, many = rng.integers(1, 65, row_count), rng.integers(1, 3 * capacity_rows // 2, row_count)
sizes = np.where(rng.random(row_count) < 0.9, few, many)
writer = channel.writer()
first = 0
for size in sizes:
    size = min(int(size), row_count - first)
    if not size:
        break
    rows = noise[:size].copy()
    sequence = np.arange(first, first + size)
    rows[:, 0] = writer_id
    rows[:, 1] = sequence >> 16
    rows[:, 2] = sequence & 0xFFFF
    rows[:, -1] = rows[:, :-1].sum(axis=1, dtype=np.float64) % 65521
    writer.write(rows, lambda: False)
    first += size
"""


@dataclass
class Received:
    """What has come out of one ring."""

    rows: int = 0
    wrong_writer: int = 0
    wrong_checksum: int = 0
    out_of_sequence: int = 0

    def take(self, block: Rows, writer_id: int) -> None:
        whole: NDArray[np.float64] = block.sum(axis=1, dtype=np.float64) - block[:, -1]
        sequence = block[:, 1].astype(np.int64) << 16 | block[:, 2].astype(np.int64)
        self.wrong_writer += int(np.count_nonzero(block[:, 0] != writer_id))
        self.wrong_checksum += int(np.count_nonzero(whole % 65521 != block[:, -1]))
        expected = np.arange(self.rows, self.rows + len(block))
        self.out_of_sequence += int(np.count_nonzero(sequence != expected))
        self.rows += len(block)


def start_writer(channel: RingChannel, writer_id: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", WRITER_PROGRAM], stdin=subprocess.PIPE, pass_fds=channel.descriptors
    )
    assert process.stdin is not None
    pickle.dump((channel, writer_id, ROWS_PER_WRITER, LAYOUT.width, CAPACITY_ROWS), process.stdin)
    process.stdin.close()
    return process


def test_millions_of_rows_arrive_whole_once_and_in_order() -> None:
    assert WRITERS >= 4
    assert WRITERS * ROWS_PER_WRITER >= 5_000_000
    channels = [RingChannel(f"stress-{i}") for i in range(WRITERS)]
    for channel in channels:
        channel.allocate(LAYOUT, CAPACITY_ROWS)
    readers = [channel.reader() for channel in channels]
    received = [Received() for _ in channels]
    processes = [start_writer(channel, i) for i, channel in enumerate(channels)]
    guard = time.monotonic() + GUARD_S
    try:
        while time.monotonic() < guard:
            # Asked before reading: what an ended writer has written is there to be read.
            writing = any(process.poll() is None for process in processes)
            before = sum(one.rows for one in received)
            for i, reader in enumerate(readers):
                for block in reader.read():
                    received[i].take(block, i)
            if sum(one.rows for one in received) == before:
                if not writing:
                    break
                os.sched_yield()
        assert [process.wait(GUARD_S) for process in processes] == [0] * WRITERS
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for one in received:
        assert (one.wrong_writer, one.wrong_checksum, one.out_of_sequence) == (0, 0, 0)
        assert one.rows == ROWS_PER_WRITER
