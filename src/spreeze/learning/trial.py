"""Finds the fastest of a few compute modes by trying them in turn on real updates. In: times. Out: the mode."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

MARGIN = 0.1  # a candidate must be this much faster than those before it: less is noise


class Trial(Generic[T]):
    """Each candidate has several turns of a few updates; the one with the smallest median time wins.

    Candidates come in the order of preference: of those that are about as fast, the first is taken.
    """

    def __init__(self, candidates: Sequence[T], rounds: int, turn_length: int) -> None:
        self._candidates, self._turn_length = list(candidates), turn_length
        self._turns = [candidate for _ in range(rounds) for candidate in candidates]
        self._times: dict[T, list[float]] = {candidate: [] for candidate in candidates}
        self._done = 0

    @property
    def current(self) -> T:
        """The candidate to use now: the one whose turn it is, and after all turns the fastest."""
        turn = self._done // self._turn_length
        return self._turns[turn] if turn < len(self._turns) else self.best

    @property
    def is_over(self) -> bool:
        """Whether all have had their turns."""
        return self._done >= len(self._turns) * self._turn_length

    @property
    def candidates(self) -> list[T]:
        """All candidates, in the order of preference."""
        return list(self._candidates)

    @property
    def best(self) -> T:
        """The first candidate that is about as fast as the fastest; one without a time is not."""
        medians = {candidate: self._median(candidate) or float("inf") for candidate in self._candidates}
        fastest = min(medians.values())
        return next(candidate for candidate, median in medians.items() if median <= (1 + MARGIN) * fastest)

    def record(self, seconds: float) -> None:
        """Record how long one update took with the current candidate."""
        # The first of a turn includes the cost of the change.
        if self._done % self._turn_length or self._turn_length == 1:
            self._times[self.current].append(seconds)
        self._done += 1

    def summary(self) -> str:
        """Return the median times in words, in milliseconds per update."""
        medians = {candidate: self._median(candidate) or 0.0 for candidate in self._candidates}
        return ", ".join(f"{1e3 * seconds:.2f} ms with {candidate}" for candidate, seconds in medians.items())

    def _median(self, candidate: T) -> float | None:
        times = self._times[candidate]
        return statistics.median(times) if times else None
