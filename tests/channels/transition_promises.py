"""What every channel of transitions promises: tests of the fixture `channel`, for the modules that have one."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

from spreeze.channels.transitions import RowLayout, Rows, TransitionChannel, TransitionReader

LAYOUT = RowLayout(observation_size=2, action_size=1)
GUARD_S = 60.0  # ends a test that would hang; nothing is asserted about time

# Opens the channel it is sent and writes block after block, each row holding its place in the sequence.
WRITER_PROGRAM = """
import pickle, sys
import numpy as np
channel, sizes, width = pickle.load(sys.stdin.buffer)
writer = channel.writer()
first = 0
for size in sizes:
    rows = np.arange(first, first + size, dtype=np.float32)[:, None] + np.arange(width, dtype=np.float32) / 16
    writer.write(rows, lambda: False)
    first += size
"""


def numbered(first: int, count: int) -> Rows:
    """Rows whose every column tells the row's place in the sequence."""
    columns = np.arange(LAYOUT.width, dtype=np.float32) / 16
    return (np.arange(first, first + count)[:, None] + columns).astype(np.float32)


def with_our_path() -> dict[str, str]:
    """The variables of a process that finds the modules that this one does."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def never() -> bool:
    return False


def collect(reader: TransitionReader, count: int) -> Rows:
    """Read until this many rows are there; what travels through a pipe takes a moment."""
    blocks = [np.zeros((0, LAYOUT.width), np.float32)]
    guard = time.monotonic() + GUARD_S
    while sum(map(len, blocks)) < count and time.monotonic() < guard:
        blocks += [block.copy() for block in reader.read()]
    return np.concatenate(blocks)


def test_empty_channel_gives_nothing(channel: TransitionChannel) -> None:
    assert list(channel.reader().read()) == []


def test_rows_arrive_in_the_order_of_writing(channel: TransitionChannel) -> None:
    writer, reader = channel.writer(), channel.reader()
    for first, count in ((0, 3), (3, 1), (4, 20)):
        writer.write(numbered(first, count), never)
    np.testing.assert_array_equal(collect(reader, 24), numbered(0, 24))
    assert list(reader.read()) == []


def test_writer_may_reuse_its_rows(channel: TransitionChannel) -> None:
    writer, reader = channel.writer(), channel.reader()
    rows = numbered(0, 4)
    writer.write(rows, never)
    rows[:] = -1
    np.testing.assert_array_equal(collect(reader, 4), numbered(0, 4))


def test_full_channel_gives_up_only_when_told_and_keeps_what_it_has(channel: TransitionChannel) -> None:
    writer, reader = channel.writer(), channel.reader()
    asked = 0

    def second_time() -> bool:
        nonlocal asked
        asked += 1
        return asked >= 2

    written = 0
    while asked < 2:  # asked twice: the channel was full in between
        asked = 0
        writer.write(numbered(written, 1), second_time)
        written += asked < 2
        assert written < 100_000, "a channel without an end"
    np.testing.assert_array_equal(collect(reader, written), numbered(0, written))
    writer.write(numbered(written, 1), never)
    np.testing.assert_array_equal(collect(reader, 1), numbered(written, 1))


def test_slow_reader_gets_everything(channel: TransitionChannel) -> None:
    sizes = np.random.default_rng(0).integers(1, 40, 400).tolist()
    total = sum(sizes)
    writer = channel.writer()

    def write_all(write: Callable[[Rows, Callable[[], bool]], float]) -> None:
        first = 0
        for size in sizes:
            write(numbered(first, size), never)
            first += size

    thread = threading.Thread(target=write_all, args=(writer.write,), daemon=True)
    thread.start()
    received = collect(channel.reader(), total)
    thread.join(GUARD_S)
    np.testing.assert_array_equal(received, numbered(0, total))


def test_rows_cross_a_process_boundary(channel: TransitionChannel) -> None:
    sizes = np.random.default_rng(1).integers(1, 100, 200).tolist()
    with subprocess.Popen(
        [sys.executable, "-P", "-c", WRITER_PROGRAM],
        stdin=subprocess.PIPE,
        pass_fds=channel.descriptors,
        env=with_our_path(),
    ) as process:
        assert process.stdin is not None
        pickle.dump((channel, sizes, LAYOUT.width), process.stdin)
        process.stdin.close()
        received = collect(channel.reader(), sum(sizes))
        assert process.wait(GUARD_S) == 0
    np.testing.assert_array_equal(received, numbered(0, sum(sizes)))


def test_rows_of_a_process_that_ended_are_still_there(channel: TransitionChannel) -> None:
    sizes = [10, 20, 30]
    subprocess.run(
        [sys.executable, "-P", "-c", WRITER_PROGRAM],
        input=pickle.dumps((channel, sizes, LAYOUT.width)),
        pass_fds=channel.descriptors,
        env=with_our_path(),
        check=True,
    )
    np.testing.assert_array_equal(collect(channel.reader(), 60), numbered(0, 60))
