"""How many episodes an evaluation has: few for a version that is clearly no better than the best, all for the others.

Of N episodes, k are played first. Let m be the mean and s the standard deviation of their returns (with k - 1), b the
best mean return so far, and r the target return. The others are left out if

    m + 2 s / sqrt(k) < b    and    m + 2 s / sqrt(k) < r

So no version is the best, or reaches the target, by a few lucky episodes: both need all N.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from spreeze.channels.rejected_rows import is_usable

FIRST_SHARE, LEAST_FIRST = 0.4, 3  # of the episodes; fewer say little about their spread
STANDARD_ERRORS = 2.0


def blocks_of(episodes: int) -> list[int]:
    """Return how many episodes are played together: first a few, then the others."""
    first = max(LEAST_FIRST, math.ceil(FIRST_SHARE * episodes))
    return [first, episodes - first] if first < episodes else [episodes]


def is_enough(returns: Sequence[float], best: float, target: float | None) -> bool:
    """Return whether these episodes show that a version is neither the best nor at the target."""
    count = len(returns)
    if count < 2 or not all(map(is_usable, returns)):
        return False
    mean = math.fsum(returns) / count
    variance = math.fsum((each - mean) ** 2 for each in returns) / (count - 1)
    highest = mean + STANDARD_ERRORS * math.sqrt(variance / count)
    return highest < best and (target is None or highest < target)
