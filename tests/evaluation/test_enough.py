"""How many episodes an evaluation has: a version is the best, or reaches the target, with all of them only."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from spreeze.evaluation.enough import POOLED_EVALUATIONS, QUANTILES, Spread, blocks_of, is_enough


@pytest.mark.parametrize(
    ("episodes", "blocks"),
    [
        (1, [1]),
        (2, [2]),
        (3, [2, 1]),
        (4, [2, 2]),
        (5, [2, 3]),
        (6, [2, 1, 3]),
        (10, [2, 2, 6]),
        (100, [20, 20, 60]),
    ],
)
def test_a_few_episodes_are_played_first_and_then_a_few_more(episodes: int, blocks: list[int]) -> None:
    assert blocks_of(episodes) == blocks


def spread_of(*evaluations: Sequence[float]) -> Spread:
    spread = Spread()
    for returns in evaluations:
        spread.add(returns)
    return spread


# Variance 2 with one degree of freedom, and with two.
TWO, THREE = (9.0, 11.0), (100.0 - math.sqrt(2), 100.0, 100.0 + math.sqrt(2))
WILD = (-90.0, 110.0)


@pytest.mark.parametrize(
    ("returns", "earlier", "standard_error", "freedom"),
    [
        (TWO, [], 1.0, 1),
        (TWO, [THREE], 1.0, 3),
        (TWO, [TWO] * POOLED_EVALUATIONS, 1.0, POOLED_EVALUATIONS + 1),
        (TWO, [WILD] + [TWO] * POOLED_EVALUATIONS, 1.0, POOLED_EVALUATIONS + 1),  # too long ago
        (TWO, [THREE] * POOLED_EVALUATIONS, 1.0, len(QUANTILES)),  # eleven: that of ten stands for all above
        (WILD, [THREE], 100.0, 3),  # nothing like it came before: its own counts
        ((10.0, 10.0), [TWO], math.sqrt(2 / 2 / 2), 2),  # pooled: two equal returns may be chance
        (TWO, [(0.0, math.nan)], 1.0, 1),  # says nothing
        ((10.0, 10.0, 10.0), [(3.0,)], 0.0, 2),
    ],
)
def test_how_high_the_mean_may_be(
    returns: Sequence[float], earlier: list[Sequence[float]], standard_error: float, freedom: int
) -> None:
    expected = 10 + QUANTILES[freedom - 1] * standard_error
    assert spread_of(*earlier).highest_mean(returns) == pytest.approx(expected)


HIGHEST = 10 + QUANTILES[2]  # of TWO after THREE


@pytest.mark.parametrize(
    ("returns", "best", "target", "enough"),
    [
        (TWO, HIGHEST + 0.01, None, True),
        (TWO, HIGHEST - 0.01, None, False),  # it may be better with more
        (TWO, math.inf, HIGHEST - 0.01, False),  # or at the target
        (TWO, math.inf, HIGHEST + 0.01, True),
        (TWO, -math.inf, None, False),  # the first version of a run
        ((-5.0, math.nan), math.inf, None, False),  # all of them say how many cannot be used
        ((-5.0, -math.inf), math.inf, None, False),
        ((-5.0,), math.inf, None, False),
    ],
)
def test_what_is_clearly_no_better_needs_no_more(
    returns: Sequence[float], best: float, target: float | None, enough: bool
) -> None:
    assert is_enough(returns, spread_of(THREE), best, target) is enough


def test_equal_returns_are_compared_exactly() -> None:
    assert is_enough((-5.0, -5.0), Spread(), -4.0, None)
    assert not is_enough((-5.0, -5.0), Spread(), -5.0, None)


@pytest.mark.parametrize("earlier", [0, 1, POOLED_EVALUATIONS])
def test_a_version_as_good_as_the_best_is_seldom_given_up(earlier: int) -> None:
    rng, given_up, tries = np.random.default_rng(0), 0, 4000
    for _ in range(tries):
        spread = spread_of(*rng.normal(50.0, 3.0, (earlier, 2)).tolist())
        given_up += is_enough(rng.normal(70.0, 3.0, 2).tolist(), spread, 70.0, None)
    assert given_up <= 0.03 * tries  # one in forty
