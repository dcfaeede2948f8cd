"""How many episodes an evaluation has: few for a version that is clearly no better than the best, all for the others.

Of N episodes, a fifth is played first, then another fifth, then the others. Let k be how many were played, m the mean
of their returns, b the best mean return so far, r the target return, and s the standard deviation of returns of one
version (`Spread`). What was not played yet is left out if

    m + t s / sqrt(k) < b    and    m + t s / sqrt(k) < r

where t is the 97.5% quantile of Student's distribution. So no version is the best, or reaches the target, by a few
lucky episodes: both need all N. And a mean of few episodes has a standard error of at most half its distance from b
and from r, and that difference is what a curve is to show.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from spreeze.channels.rejected_rows import is_usable

LOOKS, LEAST = (0.2, 0.4), 2  # shares of the episodes; a single one says nothing about their spread
# Two returns alone have one degree of freedom: t = 12.7. Over more evaluations, spreads change as the policy does.
POOLED_EVALUATIONS = 5
# Of Student's distribution at 97.5%, for 1, 2, 3, ... degrees of freedom; the last also for more (1.96 for many).
QUANTILES = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)


def blocks_of(episodes: int) -> list[int]:
    """Return how many episodes are played together, one block after the other."""
    looks = [min(episodes, max(LEAST, math.ceil(share * episodes))) for share in LOOKS]
    ends = sorted({*looks, episodes})
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


class Spread:
    """How much returns of one version differ: in its evaluation, and in the few before, whose variances are pooled.

    Where its own returns differ more than the pooled ones, they count alone: a gait that sometimes falls is new.
    """

    def __init__(self) -> None:
        self._squares: deque[tuple[float, int]] = deque(maxlen=POOLED_EVALUATIONS)
        """Of each evaluation, the sum of squares about its mean, and its degrees of freedom."""

    def add(self, returns: Sequence[float]) -> None:
        """Take in the returns of an evaluation that is complete."""
        if all(map(is_usable, returns)):
            self._squares.append((_squares(returns), len(returns) - 1))

    def highest_mean(self, returns: Sequence[float]) -> float:
        """Return what the mean is hardly above, as far as these episodes of a version show, two or more."""
        own, count = _squares(returns), len(returns)
        freedom = count - 1 + sum(each for _, each in self._squares)
        pooled = (own + math.fsum(each for each, _ in self._squares)) / freedom
        variance = max(pooled, own / (count - 1))
        quantile = QUANTILES[min(freedom, len(QUANTILES)) - 1]
        return math.fsum(returns) / count + quantile * math.sqrt(variance / count)


def is_enough(returns: Sequence[float], spread: Spread, best: float, target: float | None) -> bool:
    """Return whether these episodes show that a version is neither the best nor at the target."""
    if len(returns) < LEAST or not all(map(is_usable, returns)):
        return False
    highest = spread.highest_mean(returns)
    return highest < best and (target is None or highest < target)


def _squares(returns: Sequence[float]) -> float:
    mean = math.fsum(returns) / len(returns)
    return math.fsum((each - mean) ** 2 for each in returns)
