"""Distributions of values: means, the Bellman operator on the atoms, and algorithms that learn with them."""

from __future__ import annotations

import pytest
import torch
from making import CONTINUOUS, make

from spreeze.algorithms.batch import Batch
from spreeze.algorithms.distributional import Distribution
from spreeze.config import Config
from spreeze.config.own_settings import find_algorithm
from spreeze.errors import ConfigError

CPU = torch.device("cpu")
VALUES = Distribution(-2.0, 2.0, 5, CPU)  # -2, -1, 0, 1, 2


def logits(*probabilities: list[float]) -> torch.Tensor:
    """One row, as many critics as there are distributions."""
    return (torch.tensor(probabilities) + 1e-12).log()[:, None, :]


def batch(reward: float, terminated: float = 0.0, discount: float = 0.5) -> Batch:
    nothing = torch.zeros(1, 1)
    return Batch(
        nothing, nothing, torch.tensor([reward]), nothing, torch.tensor([terminated]), torch.tensor([discount])
    )


def test_the_mean_is_that_of_the_distribution() -> None:
    means = VALUES.mean(logits([0, 0, 0, 0, 1], [0.5, 0, 0, 0.5, 0]))
    torch.testing.assert_close(means, torch.tensor([[2.0], [-0.5]]))


@pytest.mark.parametrize(
    ("given", "reward", "terminated", "bonus", "expected"),
    [
        # All at 2: moved to 0 + 0.5 * 2 = 1, an atom.
        ([0, 0, 0, 0, 1], 0.0, 0.0, None, [0, 0, 0, 1, 0]),
        # Moved to 0.25 + 1: between two atoms, three quarters to the nearer one.
        ([0, 0, 0, 0, 1], 0.25, 0.0, None, [0, 0, 0, 0.75, 0.25]),
        # Nothing follows: the reward alone, whatever was given.
        ([0.2, 0.2, 0.2, 0.2, 0.2], -0.5, 1.0, None, [0, 0.5, 0.5, 0, 0]),
        # Beyond the bounds: the outermost atom.
        ([0, 0, 0, 0, 1], 9.0, 0.0, None, [0, 0, 0, 0, 1]),
        ([1, 0, 0, 0, 0], -9.0, 0.0, None, [1, 0, 0, 0, 0]),
        # The entropy's bonus is discounted like a value.
        ([0, 0, 1, 0, 0], 0.0, 0.0, 2.0, [0, 0, 0, 1, 0]),
    ],
)
def test_targets_are_moved_and_shared_between_the_next_atoms(
    given: list[float], reward: float, terminated: float, bonus: float | None, expected: list[float]
) -> None:
    bonuses = None if bonus is None else torch.tensor([bonus])
    (target,) = VALUES.target(logits(given), batch(reward, terminated), bonuses)
    torch.testing.assert_close(target, torch.tensor(expected, dtype=torch.float32), atol=1e-5, rtol=0)


def test_the_distribution_with_the_smaller_mean_counts() -> None:
    (target,) = VALUES.target(logits([0, 0, 0, 0, 1], [0, 0, 1, 0, 0]), batch(0.0))
    torch.testing.assert_close(target, torch.tensor([0.0, 0, 1, 0, 0]), atol=1e-5, rtol=0)


def test_the_loss_is_least_where_distributions_are_equal() -> None:
    target = torch.tensor([[0.1, 0.2, 0.4, 0.2, 0.1]])
    own = float(VALUES.cross_entropy(logits(*target.tolist()), target))
    assert own == pytest.approx(float(-(target * target.log()).sum()), rel=1e-4)
    assert float(VALUES.cross_entropy(logits([0.2] * 5), target)) > own


@pytest.mark.parametrize("name", CONTINUOUS)
def test_critics_with_atoms_learn_the_value_of_a_constant_reward(name: str) -> None:
    """Every episode ends at once with a reward of 1: that is the value of everything."""
    algorithm = make(find_algorithm(name), 3, 2, learning_rate=1e-2, tau=0.1, atoms=21, value_range=(-5.0, 5.0))
    generator = torch.Generator().manual_seed(0)
    for _ in range(150):
        observation = torch.randn(64, 3, generator=generator)
        action = torch.rand(64, 2, generator=generator) * 2 - 1
        ones = torch.ones(64)
        terms = algorithm.update(Batch(observation, action, ones, observation, ones, 0.99 * ones), generator)
    assert float(terms["q_mean"].mean()) == pytest.approx(1.0, abs=0.1)
    assert algorithm.blank_copy(algorithm.operations).critic.flat.shape == algorithm.critic.flat.shape


def test_atoms_need_a_range() -> None:
    with pytest.raises(ConfigError, match="--value-range LOW HIGH"):
        Config("Pendulum-v1").replace(atoms=51)


def test_what_is_not_a_number_shows_in_the_loss_and_nowhere_else() -> None:
    target = VALUES.target(logits([0.2] * 5), batch(float("nan")))
    assert torch.isnan(VALUES.cross_entropy(logits([0.2] * 5), target))
