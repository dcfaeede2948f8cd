from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transition_promises import *  # noqa: F403 (what the ring promises, as tests of the fixture `channel`)
from transition_promises import LAYOUT, collect, never, numbered

from spreeze.channels.memory import PrivateSegment
from spreeze.channels.transitions import RingChannel, RowLayout, Rows, TransitionChannel


def ring(capacity_rows: int) -> RingChannel:
    channel = RingChannel("test")
    channel.allocate(LAYOUT, capacity_rows)
    return channel


@pytest.fixture
def channel() -> Iterator[TransitionChannel]:
    made = ring(64)
    yield made
    made.close()


# --- the layout of a row ----------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(1, 50), st.integers(1, 20))
def test_columns_are_disjoint_and_cover_the_row(observation_size: int, action_size: int) -> None:
    layout = RowLayout(observation_size, action_size)
    columns = np.arange(layout.width)
    parts = [
        columns[layout.observation],
        columns[layout.action],
        columns[[layout.reward]],
        columns[layout.next_observation],
        columns[[layout.terminated]],
        columns[[layout.discount]],
    ]
    assert sorted(np.concatenate(parts).tolist()) == list(range(layout.width))
    assert [len(part) for part in parts] == [observation_size, action_size, 1, observation_size, 1, 1]
    assert layout.row_bytes == numbered(0, 1).itemsize * layout.width


@settings(deadline=None)
@given(st.integers(1, 50), st.integers(1, 20))
def test_every_column_has_the_name_of_its_part(observation_size: int, action_size: int) -> None:
    layout = RowLayout(observation_size, action_size)
    names = np.array([layout.name_of(column) for column in range(layout.width)])
    assert set(names[layout.observation]) == {"observation"}
    assert set(names[layout.action]) == {"action"}
    assert names[layout.reward] == "reward"
    assert set(names[layout.next_observation]) == {"next observation"}
    assert names[layout.terminated] == "terminated"
    assert names[layout.discount] == "discount"


# --- the ring against a model -----------------------------------------------------------------------------------


@settings(deadline=None, max_examples=300)
@given(
    capacity=st.integers(1, 12),
    actions=st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.integers(0, 30)),
            st.tuples(st.just("ask"), st.integers(1, 3)),
            st.just(("drain", 0)),
        ),
        max_size=60,
    ),
)
def test_ring_behaves_like_a_bounded_list(capacity: int, actions: list[tuple[str, int]]) -> None:
    channel = ring(capacity)
    writer, reader = channel.writer(), channel.reader()
    model: deque[float] = deque()
    written = 0
    for action, count in actions:
        if action == "write":
            # What does not fit is given up, because the writer is told to stop as soon as it has to wait.
            fitting = min(count, capacity - len(model))
            writer.write(numbered(written, count), lambda: True)
            model.extend(range(written, written + fitting))
            written += fitting
            continue
        asked = count if action == "ask" else sys.maxsize
        blocks = reader.read()
        unread = 0  # rows of the block in hand, which are consumed when the next one is asked for
        for _ in range(asked):
            for _ in range(unread):
                model.popleft()
            block = next(blocks, None)
            unread = 0 if block is None else len(block)
            if block is None:
                assert not model
                break
            expected = np.array([model[i] for i in range(unread)], np.float32)
            np.testing.assert_array_equal(block, expected[:, None] + numbered(0, 1)[0])
    rest = [block.copy() for block in reader.read()]
    assert sum(map(len, rest)) == len(model)
    assert not list(reader.read())
    channel.close()


@settings(deadline=None, max_examples=30)  # a writer that waits sleeps
@given(
    capacity=st.integers(1, 12),
    sizes=st.lists(st.integers(0, 20), max_size=5),
    drains=st.integers(1, 3),
)
def test_full_ring_makes_the_writer_wait_and_loses_nothing(capacity: int, sizes: list[int], drains: int) -> None:
    channel = ring(capacity)
    writer, reader = channel.writer(), channel.reader()
    received: list[Rows] = []
    waits = 0

    def learner_reads() -> bool:
        # The writer asks this while it waits: every so often, the reader makes room meanwhile.
        nonlocal waits
        waits += 1
        if waits % drains == 0:
            received.extend(block.copy() for block in reader.read())
        return False

    first = 0
    for size in sizes:
        before = waits
        waited_s = writer.write(numbered(first, size), learner_reads)
        assert (waited_s > 0) == (waits > before)
        first += size
    received.extend(block.copy() for block in reader.read())
    np.testing.assert_array_equal(np.concatenate([numbered(0, 0), *received]), numbered(0, first))
    channel.close()


@settings(deadline=None, max_examples=100)
@given(
    capacity=st.integers(1, 12),
    actions=st.lists(
        st.tuples(st.sampled_from(["write", "first reads", "second reads"]), st.integers(0, 30)), max_size=60
    ),
)
def test_every_row_reaches_both_readers_and_the_slower_one_makes_the_writer_wait(
    capacity: int, actions: list[tuple[str, int]]
) -> None:
    channel = RingChannel("test", readers=2)
    channel.allocate(LAYOUT, capacity)
    writer, readers = channel.writer(), [channel.reader(0), channel.reader(1)]
    received: list[list[Rows]] = [[], []]
    read, written = [0, 0], 0
    for action, count in actions:
        if action == "write":
            fitting = min(count, capacity - (written - min(read)))
            writer.write(numbered(written, count), lambda: True)
            written += fitting
        else:
            side = 0 if action == "first reads" else 1
            received[side] += [block.copy() for block in readers[side].read()]
            read[side] = written
        assert channel.is_empty() == (read == [written, written])
    for side in (0, 1):
        received[side] += [block.copy() for block in readers[side].read()]
        np.testing.assert_array_equal(np.concatenate([numbered(0, 0), *received[side]]), numbered(0, written))
    channel.close()


def test_a_row_that_a_killed_writer_has_begun_is_never_read() -> None:
    channel = ring(8)
    reader = channel.reader()
    channel.writer().write(numbered(0, 3), never)
    _, _, memory = channel._arrays()
    memory[3, :2] = -1.0  # where the next row would stand, before the head moves: here it was killed
    assert channel.written() == 3
    assert np.array_equal(collect(reader, 3), numbered(0, 3))
    assert list(reader.read()) == []
    channel.writer().write(numbered(3, 4), never)
    assert np.array_equal(collect(reader, 4), numbered(3, 4))
    assert channel.written() == 7


def test_abandoned_block_is_read_again() -> None:
    channel = ring(8)
    writer, reader = channel.writer(), channel.reader()
    writer.write(numbered(0, 6), never)
    assert [len(block) for block in reader.read()] == [6]
    writer.write(numbered(6, 5), never)  # rows 6 and 7 at the end of the ring, the rest at its beginning
    for block in reader.read():
        np.testing.assert_array_equal(block, numbered(6, 2))
        break
    np.testing.assert_array_equal(np.concatenate([b.copy() for b in reader.read()]), numbered(6, 5))


def test_rows_stay_readable_after_writer_and_descriptor_are_closed() -> None:
    channel = ring(8)
    writer, reader = channel.writer(), channel.reader()
    writer.write(numbered(0, 5), never)
    writer.close(deliver=False)
    channel.close()
    np.testing.assert_array_equal(collect(reader, 5), numbered(0, 5))


def test_a_ring_in_private_memory_is_a_ring() -> None:
    channel = RingChannel("test", readers=1, make_segment=PrivateSegment)
    channel.allocate(LAYOUT, 8)
    writer, reader = channel.writer(), channel.reader()
    assert channel.descriptors == ()
    for first in range(0, 40, 5):  # around its end, again and again
        writer.write(numbered(first, 5), never)
        np.testing.assert_array_equal(collect(reader, 5), numbered(first, 5))
    assert (channel.written(), channel.is_empty()) == (40, True)
