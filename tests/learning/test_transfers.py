"""Copies in the background: every value arrives as it was when it was sent, and nobody runs away from the GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from spreeze.algorithms.batch import Batch
from spreeze.channels.transitions import RowLayout, Rows
from spreeze.learning import transfers
from spreeze.learning.replay import Replay
from spreeze.learning.transfers import STAGING_BUFFERS, Flight, Readback, Staging

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
LAYOUT = RowLayout(observation_size=2, action_size=1)
WIDTH = LAYOUT.width
# Clock cycles for which a kernel keeps the GPU busy, so that what is queued behind it has to wait: about 0.1 s.
BUSY_CYCLES = 200_000_000


def numbered(first: int, count: int) -> Rows:
    """Rows whose every column tells the row's number and the column's: whole numbers that float32 holds exactly."""
    numbers = np.arange(first, first + count)[:, None] * WIDTH + np.arange(WIDTH)
    assert numbers.size == 0 or numbers.max() < 2**24
    return numbers.astype(np.float32)


# --- readback ---------------------------------------------------------------------------------------------------


def test_nothing_comes_back_before_something_was_sent() -> None:
    readback = Readback()
    assert readback.take() is None
    assert readback.take(wait=True) is None


@pytest.mark.parametrize("wait", [False, True])
def test_tensors_come_back_once_as_they_were(wait: bool) -> None:
    readback = Readback()
    weight, bias = torch.arange(6.0).view(2, 3), torch.ones(2)
    readback.start({"weight": weight, "bias": bias})
    weight.add_(100)
    bias.zero_()
    arrived = readback.take(wait)
    assert arrived is not None
    assert arrived.keys() == {"weight", "bias"}
    assert arrived["weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert arrived["bias"].tolist() == [1, 1]
    assert readback.take(wait) is None

    readback.start({"weight": weight, "bias": bias})
    arrived = readback.take(wait)
    assert arrived is not None
    assert arrived["weight"].tolist() == [[100, 101, 102], [103, 104, 105]]
    assert arrived["bias"].tolist() == [0, 0]
    assert readback.take(wait) is None


def test_a_second_start_replaces_what_was_not_taken() -> None:
    readback = Readback()
    for value in (1.0, 2.0):
        readback.start({"value": torch.tensor(value)})
    arrived = readback.take()
    assert arrived is not None
    assert arrived["value"] == 2.0
    assert readback.take() is None


@pytest.mark.gpu
def test_tensors_come_back_as_they_were_at_the_start_however_late() -> None:
    readback, reached = Readback(), torch.cuda.Event()
    tensor, other = torch.zeros(1000, 100, device=CUDA), torch.zeros((), device=CUDA)
    for value in (1, 2, 3):
        torch.cuda._sleep(BUSY_CYCLES)
        reached.record()
        tensor.fill_(value)
        other.fill_(-value)
        readback.start({"tensor": tensor, "other": other})
        tensor.fill_(-100)
        other.fill_(100)
        early = readback.take()
        assert early is None or reached.query()  # not before the GPU has come to it
        arrived = early or readback.take(wait=True)
        assert arrived is not None
        assert (arrived["tensor"] == value).all()
        assert arrived["other"] == -value
        assert readback.take(wait=True) is None


@pytest.mark.gpu
def test_tensors_arrive_without_waiting_for_them() -> None:
    readback, tensor = Readback(), torch.arange(1000.0, device=CUDA)
    readback.start({"tensor": tensor})
    torch.cuda.synchronize()
    arrived = readback.take()
    assert arrived is not None
    assert np.array_equal(arrived["tensor"], np.arange(1000))


# --- flight -----------------------------------------------------------------------------------------------------


def test_on_a_cpu_every_launch_is_finished_at_once() -> None:
    flight = Flight(CPU)
    assert flight.finished() == 0
    assert [flight.add(count) for count in (1, 8, 3)] == [1, 8, 3]
    assert flight.finished() == 0


@pytest.mark.gpu
def test_the_host_is_never_further_ahead_and_every_update_counts_once() -> None:
    flight, done = Flight(CUDA), torch.zeros((), device=CUDA)
    on_host = torch.zeros((), pin_memory=True)
    launched = finished = 0
    for number in range(100):
        count = 1 + number % 8
        torch.cuda._sleep(BUSY_CYCLES // 100)
        done.add_(count)
        on_host.copy_(done, non_blocking=True)
        launched += count
        finished += flight.add(count)
        assert len(flight._under_way) <= Flight.AHEAD
        assert finished == launched - sum(ahead for _, ahead in flight._under_way)
        # What counts as finished has been done, by the GPU's own account.
        assert on_host.item() >= finished
    finished += flight.finished()
    assert finished == launched == on_host.item()
    assert flight.finished() == 0


@pytest.mark.gpu
def test_what_the_gpu_has_finished_is_counted_without_another_launch() -> None:
    flight = Flight(CUDA)
    assert flight.add(8) in (0, 8)  # it may be done already
    torch.cuda.synchronize()
    flight.add(1)
    torch.cuda.synchronize()
    assert flight.finished(Flight.AHEAD) <= 1
    assert not flight._under_way


# --- rows -------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_staging(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let 1,000 rows fit into a staging buffer, so that a test uses each of them many times."""
    monkeypatch.setattr(transfers, "STAGING_BYTES", 1000 * LAYOUT.row_bytes)
    return 1000


def torn_rows(batch: Batch, newest: int) -> Tensor:
    """Count the rows of a batch, on the GPU, that are not one of the rows so far."""
    columns = (
        batch.observation,
        batch.action,
        batch.reward[:, None],
        batch.next_observation,
        batch.terminated[:, None],
        batch.discount[:, None],
    )
    rows = torch.cat(columns, dim=1)
    whole = (rows == rows[:, :1] + torch.arange(WIDTH, device=rows.device)).all(1)
    known = (rows[:, 0] % WIDTH == 0) & (rows[:, 0] >= 0) & (rows[:, 0] < newest * WIDTH)
    return (~(whole & known)).sum()


@pytest.mark.gpu
@pytest.mark.parametrize("capacity", [200_000, 30_000])
def test_every_row_arrives_whole_and_in_its_place_while_rows_are_drawn(capacity: int, small_staging: int) -> None:
    total, most = 200_000, 3 * small_staging + 7
    random = np.random.default_rng(0)
    replay = Replay(LAYOUT, capacity, CUDA)
    block = np.empty((most, WIDTH), np.float32)
    torn = torch.zeros((), dtype=torch.int64, device=CUDA)
    written = 0
    while written < total:
        count = min(int(random.integers(1, most + 1)), total - written)
        block[:count] = numbered(written, count)
        replay.add(block[:count])
        written += count
        block[:] = -1  # what was added must not change with it
        if random.random() < 0.5:
            replay.flush()
        if random.random() < 0.1:
            torch.cuda._sleep(BUSY_CYCLES // 20)  # rows pile up behind the updates
        if len(replay):
            torn += torn_rows(replay.draw(256), written)
    replay.flush()
    assert len(replay) == min(total, capacity)
    assert torn.item() == 0
    # Row i of the ring holds the newest of the rows i, i + capacity, i + 2 capacity, ...
    places = np.arange(total - capacity, total) % capacity
    expected = np.empty((capacity, WIDTH), np.float32)
    expected[places] = numbered(total - capacity, capacity)
    assert np.array_equal(replay._rows.cpu().numpy(), expected)
    assert replay._count.item() == len(replay)


@pytest.mark.gpu
def test_rows_wait_for_a_gpu_that_is_busy(small_staging: int) -> None:
    # Many times what the buffers hold, while nothing is taken out of them.
    total = 3 * STAGING_BUFFERS * small_staging
    replay = Replay(LAYOUT, total, CUDA)
    torch.cuda._sleep(BUSY_CYCLES)
    replay.add(numbered(0, total))
    replay.flush()
    assert np.array_equal(replay._rows.cpu().numpy(), numbered(0, total))


@pytest.mark.gpu
@pytest.mark.parametrize("count", [999, 1000, 1001, 2000, 10_500])
def test_one_block_may_be_larger_than_the_staging_buffer(count: int, small_staging: int) -> None:
    assert Staging(WIDTH, CUDA).room() == small_staging
    replay = Replay(LAYOUT, 20_000, CUDA)
    replay.add(numbered(0, count))
    replay.flush()
    assert len(replay) == count
    assert np.array_equal(replay._rows[:count].cpu().numpy(), numbered(0, count))


@pytest.mark.gpu
def test_rows_count_once_they_are_sent() -> None:
    replay = Replay(LAYOUT, 100, CUDA)
    replay.flush()
    assert len(replay) == 0
    replay.add(numbered(0, 3))
    assert len(replay) == 0
    replay.flush()
    assert len(replay) == 3
    assert set(replay.draw(1000).observation[:, 0].tolist()) == {0.0, WIDTH, 2.0 * WIDTH}
    replay.flush()
    assert len(replay) == 3


@pytest.mark.gpu
def test_staging_starts_again_after_each_send(small_staging: int) -> None:
    staging = Staging(WIDTH, CUDA)
    assert staging.send() is None
    for first in range(0, 50, 10):
        staging.collect(numbered(first, 10))
        assert staging.room() == small_staging - 10
        block = staging.send()
        assert block is not None
        assert np.array_equal(block.cpu().numpy(), numbered(first, 10))
        staging.done()
        assert staging.room() == small_staging
