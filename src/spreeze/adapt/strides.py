"""How far apart settings are, and steps between them: sizes go by doublings."""

from __future__ import annotations

import math

from spreeze.config.run_settings import RunSettings


def doublings(old: int, new: int) -> float:
    """Return how many doublings or halvings are between two numbers; 0, for "not known yet", is taken for 1."""
    return abs(math.log2(max(1, new) / max(1, old)))


def most_doublings(old: RunSettings, new: RunSettings) -> float:
    """Return the longest step of any setting, in doublings, and at least one."""
    steps = zip(old[:4], new[:4], strict=True)  # all but whether cores are kept apart
    return max(1.0, *(doublings(before, after) for before, after in steps if before != after))


def halved(size: int, low: int, times: int) -> int:
    """Return the size halved so many times, or as often as it stays within the bound."""
    while times and size // 2 >= low:
        size, times = size // 2, times - 1
    return size


def doubled(size: int, high: int, times: int) -> int:
    """Return the size doubled so many times, or as often as it stays within the bound."""
    while times and size * 2 <= high:
        size, times = size * 2, times - 1
    return size
