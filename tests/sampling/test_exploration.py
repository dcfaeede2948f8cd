"""How samplers explore where actions are choices."""

from __future__ import annotations

import numpy as np
import pytest

from spreeze.config import Config, PolicyKind
from spreeze.sampling.exploration import NOISE_STEPS, ChoiceExploration, noise_scale

CHOICES = (3, 5)


def exploration(kind: PolicyKind = "greedy", scale: tuple[float, ...] = (0.0, 0.3, 1.0)) -> ChoiceExploration:
    return ChoiceExploration(np.array(scale, np.float32)[:, None], CHOICES, np.random.default_rng(5), kind)


def drawn(explores: ChoiceExploration, blocks: int = 30) -> np.ndarray:
    return np.stack([next(explores.noise) for _ in range(blocks * NOISE_STEPS)])  # (steps, envs, ...)


def test_each_environment_makes_its_share_of_random_choices() -> None:
    noise = drawn(exploration())
    assert noise.dtype == np.int32
    shares = (noise >= 0).mean(axis=(0, 2))
    assert shares == pytest.approx([0.0, 0.3, 1.0], abs=0.02)
    for component, count in enumerate(CHOICES):
        made = noise[:, 2, component]
        assert np.bincount(made, minlength=count) / len(made) == pytest.approx([1 / count] * count, abs=0.03)


def test_the_warm_up_makes_all_choices_alike() -> None:
    explores = exploration()
    made = np.concatenate([explores.uniform_actions() for _ in range(1000)])
    assert made.dtype == np.int32
    for component, count in enumerate(CHOICES):
        share = np.bincount(made[:, component], minlength=count) / len(made)
        assert share == pytest.approx([1 / count] * count, abs=0.03)


def test_gumbel_noise_draws_from_the_probabilities_of_a_policy() -> None:
    probabilities = np.array([0.7, 0.2, 0.1])
    noise = drawn(exploration("categorical", (1.0, 0.0)), blocks=60)
    assert noise.shape[1:] == (2, sum(CHOICES))
    made = (np.log(probabilities) + noise[:, 0, :3]).argmax(-1)
    assert np.bincount(made) / len(made) == pytest.approx(probabilities, abs=0.03)
    assert not noise[:, 1].any()  # without noise, the most likely


@pytest.mark.parametrize("kind", ["greedy", "categorical"])
def test_another_one_continues_where_one_was(kind: PolicyKind) -> None:
    explores, other = exploration(kind), exploration(kind)
    explores.uniform_actions()
    drawn(explores, 1)
    next(explores.noise)
    other.restore(explores.state())
    np.testing.assert_array_equal(drawn(explores, 2), drawn(other, 2))
    np.testing.assert_array_equal(explores.uniform_actions(), other.uniform_actions())


def test_probabilities_are_spread_evenly_by_their_logarithms() -> None:
    sampling = Config("x").replace(exploration=0.001, exploration_high=0.4).sampling
    ladder = np.concatenate([noise_scale(sampling, index, 16, "greedy") for index in range(4)])[:, 0]
    assert ladder.min() == pytest.approx(0.001)
    assert 0.3 < ladder.max() <= 0.4
    assert np.median(ladder) == pytest.approx((0.001 * 0.4) ** 0.5, rel=0.2)
    never = Config("x").replace(exploration=0.0, exploration_high=0.0).sampling
    assert not noise_scale(never, 0, 4, "greedy").any()
