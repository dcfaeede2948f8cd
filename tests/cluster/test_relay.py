"""Blocks of rows between machines: every row once and in order, or counted as lost."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest

from spreeze.channels.transitions import Rows
from spreeze.cluster.relay import Block, Inbox, Outbox

WIDTH = 3
ROW_BYTES = 4 * WIDTH


def numbered(first: int, count: int) -> Rows:
    """Rows whose columns all hold the row's number."""
    return np.repeat(np.arange(first, first + count, dtype=np.float32)[:, None], WIDTH, axis=1)


def outbox(full_rows: int = 8, enough_rows: int = 4, longest_s: float = 0.0, kept: int = 2) -> Outbox:
    return Outbox(WIDTH, lambda: 100, full_rows * ROW_BYTES, enough_rows * ROW_BYTES, longest_s, kept)


def take(box: Outbox, number: int, acknowledged: int = 0) -> Block:
    block = box.take(number, acknowledged, timeout_s=5.0)
    assert block is not None
    return block


def test_blocks_have_numbers_and_say_which_rows_are_in_them() -> None:
    box = outbox()
    box.add(numbered(0, 3))
    first = take(box, 1)
    box.add(numbered(3, 2))
    second = take(box, 2, acknowledged=1)
    assert (first.number, first.first_row, first.written, len(first.rows)) == (1, 0, 100, 3)
    assert (second.number, second.first_row, len(second.rows)) == (2, 3, 2)
    assert np.array_equal(np.concatenate([first.rows, second.rows]), numbered(0, 5))


def test_a_block_is_the_same_however_often_it_is_asked_for_until_it_is_acknowledged() -> None:
    box = outbox()
    box.add(numbered(0, 3))
    first = take(box, 1)
    box.add(numbered(3, 3))
    assert np.array_equal(take(box, 1).rows, first.rows)
    take(box, 2, acknowledged=1)
    assert box.take(1, 1, timeout_s=0.0) is None


def test_few_rows_wait_for_others_and_enough_leave_at_once() -> None:
    box = outbox(longest_s=1000.0)
    box.add(numbered(0, 3))
    assert box.take(1, 0, timeout_s=0.0) is None
    box.add(numbered(3, 1))
    assert len(take(box, 1).rows) == 4


def test_a_block_grows_while_nobody_asks_for_it_until_it_is_full() -> None:
    box = outbox(full_rows=8, enough_rows=4)
    assert box.add(numbered(0, 7)) == 7
    assert box.add(numbered(7, 3)) == 3
    assert len(take(box, 1).rows) == 8
    assert len(take(box, 2).rows) == 2


def test_no_more_rows_are_taken_than_may_be_kept() -> None:
    box = outbox(full_rows=8, kept=2)
    assert box.add(numbered(0, 100)) == 24  # two that are kept, and one that is open
    assert not box.room
    assert take(box, 1).number == 1
    assert not box.room  # it was served, which is no promise that it has arrived
    assert take(box, 3, acknowledged=1).first_row == 16
    assert box.room


def test_who_asks_early_gets_the_block_when_it_is_there() -> None:
    box, got = outbox(), list[Block]()
    asking = [threading.Thread(target=lambda n=n: got.append(take(box, n))) for n in (2, 1)]
    for thread in asking:
        thread.start()
    box.add(numbered(0, 8))
    box.add(numbered(8, 4))
    for thread in asking:
        thread.join()
    assert sorted((block.number, len(block.rows)) for block in got) == [(1, 8), (2, 4)]


def test_the_last_block_is_what_is_there_and_then_there_are_no_more() -> None:
    box = outbox(longest_s=1000.0)
    box.add(numbered(0, 1))
    box.close()
    assert len(take(box, 1).rows) == 1
    end = take(box, 2, acknowledged=1)
    assert (end.number, end.first_row, len(end.rows)) == (0, 1, 0)
    assert box.is_empty


def test_a_block_that_arrives_again_is_left_out() -> None:
    inbox = Inbox()
    block = Block(1, 0, 4, numbered(0, 4))
    assert inbox.accept(block) is block.rows
    assert inbox.accept(block) is None
    assert (inbox.last, inbox.rows, inbox.repeated, inbox.lost) == (1, 4, 4, 0)


def test_a_block_that_never_arrives_is_counted() -> None:
    inbox = Inbox()
    inbox.accept(Block(1, 0, 4, numbered(0, 4)))
    inbox.accept(Block(3, 9, 12, numbered(9, 3)))
    assert (inbox.rows, inbox.lost) == (12, 5)


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_lost_on_the_way_every_row_arrives_once_and_in_order(seed: int) -> None:
    """Answers are lost, arrive twice and in any order within what is under way."""
    rng, box, inbox, total = random.Random(seed), outbox(kept=4), Inbox(), 3000
    arrived = list[Rows]()

    def write() -> None:
        written = 0
        while written < total:
            written += box.add(numbered(written, min(5, total - written)))
        box.close()

    writer = threading.Thread(target=write)
    writer.start()
    answers = list[Block]()
    while inbox.rows < total:
        for number in range(inbox.last + 1, inbox.last + 5):
            if rng.random() < 0.6 and (block := box.take(number, inbox.last, timeout_s=0.001)) is not None:
                answers += [block] * rng.choice((0, 1, 1, 2))  # one that is lost is asked for again
        rng.shuffle(answers)
        for block in [block for block in answers if block.number <= inbox.last + 1]:
            answers.remove(block)
            if block.number and (rows := inbox.accept(block)) is not None:
                arrived.append(rows)
    writer.join()
    assert np.array_equal(np.concatenate(arrived), numbered(0, total))
    assert inbox.lost == 0
    assert inbox.repeated
