"""`spreeze bench cluster`: every kind of wrong row is seen, and wrong inputs are refused. tests/cluster/ measures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from spreeze.channels.transitions import RingChannel
from spreeze.commands.bench.cluster_ends import (
    DIFFERENT_ROWS,
    ROWS_AT_ONCE,
    NumberedRows,
    count_wrong,
    layout_of,
    start_end,
    stop_end,
)

if TYPE_CHECKING:
    from conftest import Spreeze

WIDTH = 43


def test_rows_in_their_order_are_right_also_when_their_contents_repeat() -> None:
    rows = NumberedRows(WIDTH)
    for first in range(0, 2 * DIFFERENT_ROWS, ROWS_AT_ONCE):
        assert count_wrong(rows.following(), first) == 0


def test_a_row_that_is_damaged_lost_or_repeated_is_wrong() -> None:
    rows = NumberedRows(WIDTH).following().copy()
    damaged = rows.copy()
    damaged.view(np.uint32)[7, 20] ^= 1
    assert count_wrong(damaged, 0) == 1
    lost = np.delete(rows, 100, axis=0)
    assert count_wrong(lost, 0) == len(lost) - 100
    repeated = np.concatenate([rows[:10], rows[:10]])
    assert count_wrong(repeated, 0) == 10


@pytest.mark.parametrize("row_bytes", [32, 172, 2864, 3000, 3004])
def test_rows_have_the_size_that_is_asked_for(row_bytes: int) -> None:
    assert layout_of(row_bytes).row_bytes == row_bytes


@pytest.mark.parametrize("is_damaged", [False, True])
def test_reader_and_writer_meet_in_a_ring_and_the_reader_counts_what_is_wrong(is_damaged: bool) -> None:
    ring, other = RingChannel("test"), RingChannel("other")
    for channel in (ring, other):
        channel.allocate(layout_of(4 * WIDTH), 4 * ROWS_AT_ONCE)
    writer = start_end("write", WIDTH, other)
    reader = start_end("read", WIDTH, ring)
    here, there = ring.writer(), other.reader()
    while there.position < 10 * ROWS_AT_ONCE:
        for rows in there.read():
            sent = rows.copy()
            if is_damaged and there.position == 0:
                sent[0] += 1
            here.write(sent, lambda: False)
    while not ring.is_empty():
        pass  # for the reader
    assert int(stop_end(reader)) == is_damaged
    stop_end(writer)
    ring.close()
    other.close()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--row-bytes", 171), "--row-bytes must be multiples of 4"),
        (("--row-bytes", 8), "--row-bytes must be multiples of 4"),
        (("--seconds", 0), "--seconds must be above 0"),
    ],
)
def test_wrong_inputs_are_refused_in_one_line(spreeze: Spreeze, flags: tuple[object, ...], said: str) -> None:
    done = spreeze("bench", "cluster", *flags)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_without_ray_it_says_what_to_install(spreeze: Spreeze) -> None:
    done = spreeze("bench", "cluster", environment=spreeze.without("ray"))
    assert done.returncode == 2
    assert 'pip install "spreeze[ray]"' in done.stderr
    assert len(done.stderr.splitlines()) == 1
