from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spreeze.algorithms.networks import _concatenated
from spreeze.channels.transitions import RowLayout, Rows
from spreeze.learning.replay import Replay

LAYOUT = RowLayout(observation_size=2, action_size=1)
CPU = torch.device("cpu")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(0)


def numbered(first: int, count: int) -> Rows:
    """Rows whose every column tells the row's number and the column's."""
    numbers, columns = np.arange(first, first + count), np.arange(LAYOUT.width)
    return (numbers[:, None] * 100 + columns).astype(np.float32)


def drawn_numbers(replay: Replay, draws: int = 3000) -> set[int]:
    return set((replay.draw(draws).reward // 100).int().tolist())


def test_empty_replay_has_no_rows() -> None:
    replay = Replay(LAYOUT, 10, CPU)
    assert len(replay) == 0
    replay.add(numbered(0, 0))
    assert len(replay) == 0


def test_every_part_of_a_row_comes_back_in_its_place() -> None:
    replay = Replay(LAYOUT, 10, CPU)
    replay.add(numbered(7, 1))
    batch = replay.draw(4)
    row = torch.from_numpy(numbered(7, 1)[0])
    for part, columns in (
        (batch.observation, LAYOUT.observation),
        (batch.action, LAYOUT.action),
        (batch.reward, LAYOUT.reward),
        (batch.next_observation, LAYOUT.next_observation),
        (batch.terminated, LAYOUT.terminated),
        (batch.discount, LAYOUT.discount),
    ):
        assert torch.equal(part, row[columns].expand(4, *row[columns].shape))


@settings(deadline=None)
@given(capacity=st.integers(1, 10), sizes=st.lists(st.integers(0, 35), max_size=10))
def test_the_newest_rows_are_kept(capacity: int, sizes: list[int]) -> None:
    replay = Replay(LAYOUT, capacity, CPU)
    written = 0
    for size in sizes:
        replay.add(numbered(written, size))
        written += size
        assert len(replay) == min(written, capacity)
        assert replay._count.item() == len(replay)  # what a draw goes by, on whatever device
        if written:
            # Each row is missed by 3,000 draws with probability (1 - 1/10)^3000: never.
            assert drawn_numbers(replay) == set(range(max(0, written - capacity), written))


def test_rows_that_were_never_written_are_never_drawn() -> None:
    replay = Replay(LAYOUT, 1000, CPU)
    replay.add(numbered(1, 5))
    assert drawn_numbers(replay) == {1, 2, 3, 4, 5}


def test_draws_are_uniform() -> None:
    replay = Replay(LAYOUT, 50, CPU)
    replay.add(numbered(0, 70))
    counts = torch.bincount((replay.draw(100_000).reward // 100).long(), minlength=70)
    assert counts[:20].sum() == 0
    # Chi-square with 49 degrees of freedom: above 100 with probability 2e-5, and the seed is fixed.
    chi_square = ((counts[20:] - 2000.0) ** 2 / 2000.0).sum()
    assert chi_square < 100


def test_seed_of_the_process_decides_the_draws() -> None:
    replay = Replay(LAYOUT, 100, CPU)
    replay.add(numbered(0, 100))

    def drawn(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return replay.draw(50).reward

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))
    assert not torch.equal(drawn(1), replay.draw(50).reward)


def test_draws_with_random_numbers_of_their_own_leave_those_of_the_process_alone() -> None:
    replay = Replay(LAYOUT, 100, CPU)
    replay.add(numbered(0, 100))
    before = torch.get_rng_state()
    first, second = (replay.draw(50, torch.Generator().manual_seed(seed)).reward for seed in (1, 2))
    assert not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_rows_are_copied_on_both_ways() -> None:
    replay = Replay(LAYOUT, 10, CPU)
    rows = numbered(3, 1)
    replay.add(rows)
    rows[:] = -1
    batch = replay.draw(2)
    assert (batch.reward // 100).tolist() == [3, 3]
    batch.reward.zero_()
    assert (replay.draw(2).reward // 100).tolist() == [3, 3]


def test_views_with_gaps_can_be_added() -> None:
    replay = Replay(LAYOUT, 10, CPU)
    replay.add(numbered(0, 9)[::3])
    assert drawn_numbers(replay) == {0, 3, 6}


def test_batch_may_be_larger_than_the_replay() -> None:
    replay = Replay(LAYOUT, 10, CPU)
    replay.add(numbered(0, 2))
    assert replay.draw(64).observation.shape == (64, 2)


def test_on_a_cpu_rows_can_be_drawn_at_once_and_a_flush_changes_nothing() -> None:
    replay = Replay(LAYOUT, 10, CPU)
    replay.flush()
    assert len(replay) == 0
    replay.add(numbered(0, 3))
    assert drawn_numbers(replay) == {0, 1, 2}
    replay.flush()
    assert len(replay) == 3
    assert drawn_numbers(replay) == {0, 1, 2}


def test_critics_take_observation_and_action_of_a_batch_without_a_copy() -> None:
    replay = Replay(LAYOUT, 10, CPU)
    replay.add(numbered(0, 10))
    batch = replay.draw(6)
    together = _concatenated(batch.observation, batch.action)
    assert torch.equal(together, torch.cat([batch.observation, batch.action], dim=-1))
    assert together.data_ptr() == batch.observation.data_ptr()
