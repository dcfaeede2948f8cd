"""Both ends of the relay, for `spreeze bench cluster`: who fills a ring as fast as it can, and who checks every row.

Each is a program of its own, as a sampler and the learner are. Row k of a machine has the number k and a checksum, so
that a row that is lost, repeated, out of place or damaged is seen. Run as a program, this module is one of the two.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.transitions import RowLayout, Rows, TransitionChannel
from spreeze.cluster.agent import Agent
from spreeze.cluster.orders import LEASE_S
from spreeze.host.lifetime import die_with_parent
from spreeze.host.programs import python, python_path

FLOODING_AGENT = "spreeze.commands.bench.cluster_ends:FloodingAgent"
ROWS_AT_ONCE = 2048
DIFFERENT_ROWS = 8 * ROWS_AT_ONCE
IDLE_S = 0.0005
LOOK_S = 0.05
END_S = 5.0


def layout_of(row_bytes: int) -> RowLayout:
    """Return a layout whose rows have this size."""
    width = row_bytes // 4
    action_size = 1 if width % 2 == 0 else 2
    return RowLayout((width - 3 - action_size) // 2, action_size)


class FloodingAgent(Agent):
    """An agent whose ring is filled by a writer instead of samplers. All that follows is what a run does."""

    def _watch(self) -> None:
        spaces = self._order.spaces
        layout = RowLayout.of(spaces)
        writer = start_end("write", layout.width, self._channels.transitions[0])
        while not self._is_over.wait(LOOK_S) and self._is_heard():
            pass
        stop_end(writer)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._have_ended.set()
        while self._is_heard():
            time.sleep(LOOK_S)  # for the head, which ends this process once it has all blocks
        self._exit()

    def _is_heard(self) -> bool:
        return time.monotonic() - self._heard_at <= LEASE_S


def start_end(role: str, width: int, *channels: TransitionChannel) -> subprocess.Popen[bytes]:
    """Start the writer of a channel, or the reader of some. width: columns of a row."""
    process = subprocess.Popen(  # noqa: S603 (this module)
        python("-m", "spreeze.commands.bench.cluster_ends", role, str(width), str(os.getpid())),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": python_path()},
        pass_fds=[fd for channel in channels for fd in channel.descriptors],
    )
    assert process.stdin is not None
    process.stdin.write(pickle.dumps(channels))
    process.stdin.close()
    return process


def stop_end(process: subprocess.Popen[bytes]) -> bytes:
    """End it; return what it says last."""
    process.terminate()
    assert process.stdout is not None
    with process.stdout:
        said = process.stdout.read()
    process.wait(END_S)
    return said


class NumberedRows:
    """Makes rows: random numbers, of which the first is the row's own and the last a checksum."""

    def __init__(self, width: int) -> None:
        self._content = np.random.default_rng(0).integers(0, 2**32, (DIFFERENT_ROWS, width), np.uint32)
        self._content[:, 0] = self._content[:, -1] = 0
        self._sums = self._content.sum(axis=1, dtype=np.uint32)
        self._at = 0

    def following(self) -> Rows:
        """Return the rows after those before."""
        begin = self._at % DIFFERENT_ROWS
        rows = self._content[begin : begin + ROWS_AT_ONCE]
        rows[:, 0] = np.arange(self._at, self._at + ROWS_AT_ONCE, dtype=np.uint32)
        rows[:, -1] = self._sums[begin : begin + ROWS_AT_ONCE] + rows[:, 0]
        self._at += ROWS_AT_ONCE
        return rows.view(np.float32)


def count_wrong(rows: Rows, first: int) -> int:
    """Return how many rows are not whole, or not the next ones from this number on."""
    numbers: NDArray[np.uint32] = rows.view(np.uint32)
    right_sum = numbers[:, :-1].sum(axis=1, dtype=np.uint32) == numbers[:, -1]
    right_place = numbers[:, 0] == np.arange(first, first + len(rows), dtype=np.uint32)
    return int(len(rows) - np.count_nonzero(right_sum & right_place))


def write(channel: TransitionChannel, width: int, stopping: Callable[[], bool]) -> None:
    """Fill a ring until it is enough."""
    writer, rows = channel.writer(), NumberedRows(width)
    while not stopping():
        writer.write(rows.following(), stopping)


def read(channels: Sequence[TransitionChannel], stopping: Callable[[], bool]) -> int:
    """Read rings until it is enough, and check all rows; return how many are wrong."""
    readers, wrong = [channel.reader() for channel in channels], 0
    while not stopping():
        read_any = False
        for reader in readers:
            for rows in reader.read():
                wrong += count_wrong(rows, reader.position)
                read_any = True
        if not read_any:
            time.sleep(IDLE_S)  # for the next block
    return wrong


def main() -> None:
    """Do what the words say until SIGTERM; the reader prints how many rows were wrong."""
    role, width, parent_pid = sys.argv[1:]
    die_with_parent(int(parent_pid))
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    channels: tuple[TransitionChannel, ...] = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 (of our parent)
    if role == "write":
        write(channels[0], int(width), lambda: bool(ended))
    else:
        print(read(channels, lambda: bool(ended)))


if __name__ == "__main__":
    main()
