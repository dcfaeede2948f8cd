"""Running statistics are those of all rows; a policy with the scaling inside acts as if it were given scaled ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from spreeze.algorithms.networks import FlatParameters, actor_shapes, deterministic_action, initialise
from spreeze.channels.transitions import RowLayout
from spreeze.learning.normalisation import GROWTH, MIN_VARIANCE, Normaliser
from spreeze.learning.replay import Replay

CPU = torch.device("cpu")
SIZE = 3


def observations(count: int, seed: int = 0) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    drawn = np.random.default_rng(seed).standard_normal((count, SIZE))
    return (drawn * [1.0, 50.0, 0.0] + [1000.0, -3.0, 7.0]).astype(np.float32)


def seen(*blocks: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> Normaliser:
    normaliser = Normaliser(SIZE, CPU)
    for block in blocks:
        normaliser.add(block)
    normaliser.take_over()
    return normaliser


def test_statistics_of_blocks_are_those_of_all_rows() -> None:
    rows = observations(1000)
    normaliser = seen(rows[:1], rows[1:1], rows[1:300], rows[300:])
    np.testing.assert_allclose(normaliser.mean, rows.mean(0, dtype=np.float64), rtol=1e-5)
    expected = np.maximum(rows.astype(np.float64).var(0), MIN_VARIANCE) ** -0.5
    np.testing.assert_allclose(normaliser.scale, expected, rtol=1e-4)


def test_scaled_observations_have_mean_0_and_variance_1_and_what_never_changes_stays_0() -> None:
    rows = observations(5000)
    scaled = seen(rows)(torch.from_numpy(rows))
    assert scaled.mean(0).tolist() == pytest.approx([0, 0, 0], abs=1e-3)
    assert scaled.std(0).tolist() == pytest.approx([1, 1, 0], abs=1e-2)


def test_statistics_are_taken_over_when_there_are_clearly_more_rows() -> None:
    rows = observations(1000)
    normaliser = seen(rows[:100])
    before = normaliser.mean.clone()
    normaliser.add(rows[100:105])
    normaliser.take_over()
    assert torch.equal(normaliser.mean, before)
    normaliser.add(rows[105 : int(100 * GROWTH) + 1])
    normaliser.take_over()
    assert not torch.equal(normaliser.mean, before)


def test_a_policy_with_the_scaling_inside_takes_observations_as_they_are() -> None:
    rows = observations(64)
    normaliser = seen(rows)
    actor = FlatParameters(actor_shapes(SIZE, 2, (16,)), CPU)
    initialise(actor, torch.Generator().manual_seed(0))
    raw = torch.from_numpy(rows)
    expected = deterministic_action(actor.frozen, normaliser(raw))
    published = normaliser.inside(dict(actor.frozen))
    torch.testing.assert_close(deterministic_action(published, raw), expected, rtol=0, atol=1e-3)
    assert list(published) == list(actor.frozen)


def test_what_is_drawn_from_the_replay_is_scaled() -> None:
    layout = RowLayout(SIZE, 1)
    rows = np.zeros((200, layout.width), np.float32)
    rows[:, layout.observation], rows[:, layout.next_observation] = observations(200), observations(200, seed=1)
    rows[:, layout.reward] = 5.0
    normaliser = seen(rows[:, layout.observation])
    replay = Replay(layout, 1000, CPU, normaliser)
    replay.add(rows)
    batch = replay.draw(500)
    for part in (batch.observation, batch.next_observation):
        assert part.mean(0).tolist() == pytest.approx([0, 0, 0], abs=0.3)
    assert batch.reward.unique().tolist() == [5.0]
