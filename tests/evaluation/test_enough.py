"""How many episodes an evaluation has: a version is the best, or reaches the target, with all of them only."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from spreeze.evaluation.enough import blocks_of, is_enough


@pytest.mark.parametrize(("episodes", "blocks"), [(1, [1]), (3, [3]), (4, [3, 1]), (10, [4, 6]), (100, [40, 60])])
def test_a_few_episodes_are_played_first(episodes: int, blocks: list[int]) -> None:
    assert blocks_of(episodes) == blocks


# Mean 10, standard deviation 2, standard error 1: below 12 at most.
RETURNS = (8.0, 10.0, 12.0, 10.0 - math.sqrt(2), 10.0 + math.sqrt(2))
HIGHEST = 10.0 + 2.0 * math.sqrt((4 + 4 + 2 + 2) / 4 / 5)


@pytest.mark.parametrize(
    ("returns", "best", "target", "enough"),
    [
        (RETURNS, HIGHEST + 0.01, None, True),
        (RETURNS, HIGHEST - 0.01, None, False),  # it may be better with more
        (RETURNS, math.inf, HIGHEST - 0.01, False),  # or at the target
        (RETURNS, math.inf, HIGHEST + 0.01, True),
        (RETURNS, -math.inf, None, False),  # the first version of a run
        ((-5.0, -5.0, -5.0), -4.0, None, True),
        ((-5.0, -5.0, -5.0), -5.0, None, False),
        ((-5.0, math.nan, -5.0), -4.0, None, False),  # all of them say how many cannot be used
        ((-5.0, -math.inf, -5.0), -4.0, None, False),
        ((-5.0,), -4.0, None, False),
    ],
)
def test_what_is_clearly_no_better_needs_no_more(
    returns: Sequence[float], best: float, target: float | None, enough: bool
) -> None:
    assert is_enough(returns, best, target) is enough
