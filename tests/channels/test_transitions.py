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
from spreeze.channels.spaces import ContinuousActions, DiscreteActions, Spaces
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


def test_vectors_with_continuous_actions_are_float32_from_end_to_end() -> None:
    # Also what checkpoints of earlier versions hold.
    layout = RowLayout(3, 2)
    assert layout.numbers == slice(0, layout.width)
    assert layout.is_all_numbers
    assert layout.of_first_step == (slice(0, 5),)
    assert [layout.observation, layout.action, layout.next_observation] == [slice(0, 3), slice(3, 5), slice(6, 9)]
    assert [layout.reward, layout.terminated, layout.discount, layout.width] == [5, 9, 10, 11]
    rows = np.arange(22, dtype=np.float32).reshape(2, 11)
    records = layout.records(rows)
    assert records["next_observation"].tolist() == [[6, 7, 8], [17, 18, 19]]
    records["reward"] = [-1, -2]
    assert rows[:, layout.reward].tolist() == [-1, -2]  # a view


def test_fields_of_other_types_follow_the_numbers() -> None:
    layout = RowLayout(2, 3, "int32", (("camera.left", (5, 3)), ("map", (4,))))
    assert layout.numbers == slice(0, 7)
    assert not layout.is_all_numbers
    assert layout.of_first_step == (slice(0, 2), slice(7, 14), slice(18, 19))
    assert layout.words("action") == slice(7, 10)
    assert layout.width == 10 + 2 * (4 + 1)  # 15 bytes fill four words
    assert layout.row_bytes == 4 * layout.width
    kinds = {name: (kind.base, kind.shape) for name, (kind, *_) in (layout.dtype.fields or {}).items()}
    assert kinds["action"] == (np.int32, (3,))
    assert kinds["next_observation.camera.left"] == (np.uint8, (5, 3))
    assert [layout.name_of(word) for word in (1, 4, 8, 10, 14)] == [
        "observation",
        "next observation",
        "action",
        "observation.camera.left",
        "next observation.camera.left",
    ]
    with pytest.raises(IndexError, match="20 words"):
        layout.name_of(20)


def test_the_layout_follows_from_the_spaces() -> None:
    box = {"kind": "box", "shape": [2]}
    image = {"kind": "image", "shape": [8, 8]}
    vectors = Spaces(box, ContinuousActions(np.zeros(3), np.ones(3), (3,)))
    assert RowLayout.of(vectors) == RowLayout(2, 3)
    choices = DiscreteActions("discrete", (4,), (0,), (), "int64")
    assert RowLayout.of(Spaces(image, choices)) == RowLayout(0, 1, "int32", (("image", (8, 8)),))
    mixed = {"kind": "dict", "parts": {"cameras": {"kind": "tuple", "parts": [image, image]}, "arm": box}}
    assert RowLayout.of(Spaces(mixed, choices)) == RowLayout(
        2, 1, "int32", (("cameras.0", (8, 8)), ("cameras.1", (8, 8)))
    )
    kinds = [Spaces(encoding, choices).observation_kind for encoding in (box, image, mixed)]
    assert kinds == ["vector", "image", "mixed"]


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
