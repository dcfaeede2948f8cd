from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import pytest

from spreeze.supervision.stall import Counts, StallWatch

LIMIT_S, WARMUP = 20.0, 100


Seen = tuple[int, int, int, float]
"""Seconds, environment steps, updates, and the seconds that the learner has waited."""


def every_second(seen: Sequence[Seen]) -> Iterator[Seen]:
    """Add the looks between: nothing has changed there but the time, and how long the learner has waited."""
    for before, after in pairwise(seen):
        at, steps, updates, waited = before
        share = (after[3] - waited) / (after[0] - at)
        yield from ((second, steps, updates, waited + share * (second - at)) for second in range(at, after[0]))
    yield seen[-1]


def warnings_of(seen: Iterable[Seen]) -> list[str]:
    """Look at each in turn; return all warnings."""
    watch = StallWatch(LIMIT_S, WARMUP, batch_size=64)
    looks = (watch.look(Counts(at, steps, updates, waited)) for at, steps, updates, waited in seen)
    return [warning for warning in looks if warning is not None]


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        ([(0, 0, 0, 0.0), (19, 0, 0, 19.0)], []),
        ([(0, 0, 0, 0.0), (20, 0, 0, 20.0)], ["no environment step for 20 s: samplers are still starting, or"]),
        # Nobody has begun: the learner does not wait either.
        ([(0, 0, 0, 0.0), (20, 0, 0, 0.0)], ["no environment step for 20 s"]),
        # Once for each stall.
        ([(0, 0, 0, 0.0), (20, 0, 0, 20.0), (60, 0, 0, 60.0)], ["no environment step for 20 s"]),
        (
            [(0, 0, 0, 0.0), (20, 0, 0, 20.0), (21, 5, 0, 21.0), (50, 5, 0, 50.0)],
            ["no environment step for 20 s", "no environment step for 20 s: a step or reset"],
        ),
        # A warm-up of slow steps is no stall.
        ([(0, 1, 0, 0.0), (15, 2, 0, 15.0), (30, 3, 0, 30.0), (45, 4, 0, 45.0)], []),
        # The learner computes, or is not there yet: it does not wait. Samplers stop when they are far enough ahead.
        ([(0, 0, 0, 0.0), (5, 200, 0, 0.0), (26, 200, 0, 0.1)], ["no update for 20 s: the learner is still"]),
        ([(0, 200, 5, 0.0), (10, 300, 6, 0.0), (29, 300, 6, 0.0)], []),
        # From one update nobody can tell.
        ([(0, 200, 5, 0.0), (10, 300, 6, 0.0), (30, 300, 6, 0.0)], ["no update for 20 s: one of 64 rows takes long"]),
        # They took 2.5 s each, without the waits for rows: that is why.
        (
            [(0, 200, 5, 0.0), (5, 200, 6, 0.0), (15, 300, 8, 5.0), (35, 300, 8, 5.0)],
            ["no update for 20 s: one of 64 rows takes long"],
        ),
        # They took 10 ms each: it is something else.
        (
            [(0, 200, 0, 0.0), (5, 200, 1, 0.0), (15, 300, 1001, 0.0), (35, 300, 1001, 0.0)],
            ["no update for 20 s, and 0.01 s each before: a slow disk"],
        ),
        # It waits for rows, because of the ratio: who is late is a sampler.
        ([(0, 200, 5, 0.0), (25, 200, 5, 25.0)], ["no environment step for 20 s"]),
        ([(0, 200, 5, 0.0), (19, 300, 5, 19.0), (25, 300, 5, 25.0)], []),
    ],
)
def test_stalls_are_told_once_and_by_name(seen: list[Seen], says: list[str]) -> None:
    found = warnings_of(every_second(seen))
    assert len(found) == len(says)
    assert all(text in warning for text, warning in zip(says, found, strict=True))


def test_a_pause_of_the_whole_run_is_no_stall() -> None:
    before, pause_s = [(second, 200, 5, 0.0) for second in range(10)], 3600
    after = [(pause_s + second, 200, 5, 0.0) for second in range(10, 29)]
    assert warnings_of([*before, *after]) == []
    (warning,) = warnings_of([*before, *after, (pause_s + 30, 200, 5, 0.0)])
    assert "no update for 20 s" in warning  # counted from the end of the pause
