from __future__ import annotations

import pytest

from spreeze.supervision.stall import Counts, StallWatch

LIMIT_S, WARMUP = 20.0, 100


def warnings_of(*seen: tuple[float, int, int, float]) -> list[str]:
    """Look at (seconds, env steps and rows, updates, seconds waited) in turn; return all warnings."""
    watch = StallWatch(LIMIT_S, WARMUP, batch_size=64)
    looks = (watch.look(Counts(at, steps, steps, updates, waited)) for at, steps, updates, waited in seen)
    return [warning for warning in looks if warning is not None]


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        ([(0, 0, 0, 0.0), (19, 0, 0, 19.0)], []),
        ([(0, 0, 0, 0.0), (20, 0, 0, 20.0)], ["no environment step for 20 s"]),
        # Once for each stall.
        ([(0, 0, 0, 0.0), (20, 0, 0, 20.0), (60, 0, 0, 60.0)], ["no environment step for 20 s"]),
        (
            [(0, 0, 0, 0.0), (20, 0, 0, 20.0), (21, 5, 0, 21.0), (50, 5, 0, 50.0)],
            ["no environment step for 20 s", "no environment step for 29 s"],
        ),
        # A warm-up of slow steps is no stall.
        ([(0, 1, 0, 0.0), (15, 2, 0, 15.0), (30, 3, 0, 30.0), (45, 4, 0, 45.0)], []),
        # The learner computes: it does not wait.
        ([(0, 200, 0, 0.0), (21, 200, 0, 0.1)], ["no update for 21 s: one of 64 rows takes long"]),
        ([(0, 200, 5, 0.0), (10, 300, 6, 0.0), (29, 300, 6, 0.0)], []),
        ([(0, 200, 5, 0.0), (10, 300, 6, 0.0), (30, 300, 6, 0.0)], ["no update for 20 s"]),
        # It waits for rows, because of the ratio: who is late is a sampler.
        ([(0, 200, 5, 0.0), (25, 200, 5, 25.0)], ["no environment step for 25 s"]),
        ([(0, 200, 5, 0.0), (25, 300, 5, 25.0)], []),
    ],
)
def test_stalls_are_told_once_and_by_name(seen: list[tuple[float, int, int, float]], says: list[str]) -> None:
    found = warnings_of(*seen)
    assert len(found) == len(says)
    assert all(text in warning for text, warning in zip(says, found, strict=True))
