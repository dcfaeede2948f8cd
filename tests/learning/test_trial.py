from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spreeze.learning.trial import MARGIN, Trial


def run(trial: Trial[int], seconds: dict[int, float]) -> list[int]:
    """Let it try everything; return what it used, piece by piece."""
    used = []
    while not trial.is_over:
        used.append(trial.current)
        trial.record(seconds[trial.current])
    return used


def test_each_has_its_turns_and_the_fastest_is_kept() -> None:
    trial = Trial([1, 2, 4], rounds=2, turn_length=3)
    assert run(trial, {1: 3.0, 2: 1.0, 4: 2.0}) == [1, 1, 1, 2, 2, 2, 4, 4, 4] * 2
    assert trial.current == trial.best == 2
    assert len(trial.candidates) > 1


def test_first_piece_of_a_turn_does_not_count() -> None:
    trial = Trial([1, 2], rounds=1, turn_length=2)
    for seconds in (9.0, 1.0, 0.1, 2.0):
        trial.record(seconds)
    assert trial.best == 1


def test_one_slow_piece_does_not_decide() -> None:
    trial = Trial([1, 2], rounds=1, turn_length=6)
    for seconds in (1.0, 1.0, 99.0, 1.0, 1.0, 1.0, *[2.0] * 6):
        trial.record(seconds)
    assert trial.best == 1


def test_single_candidate_is_no_choice() -> None:
    trial = Trial([3], rounds=1, turn_length=1)
    assert trial.current == 3
    assert len(trial.candidates) == 1
    run(trial, {3: 1.0})
    assert trial.current == 3


def test_summary_names_every_candidate_in_milliseconds() -> None:
    trial = Trial([1, 2], rounds=1, turn_length=2)
    run(trial, {1: 0.005, 2: 0.004})
    assert trial.summary() == "5.00 ms with 1, 4.00 ms with 2"


@given(
    seconds=st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=6, unique=True),
    rounds=st.integers(1, 4),
    turn_length=st.integers(1, 5),
)
def test_ends_and_finds_the_fastest(seconds: list[float], rounds: int, turn_length: int) -> None:
    times = dict(enumerate(seconds, start=1))
    trial = Trial(list(times), rounds, turn_length)
    assert len(run(trial, times)) == len(times) * rounds * turn_length
    # The first of those that are about as fast as the fastest.
    assert trial.current == next(number for number, time in times.items() if time <= (1 + MARGIN) * min(seconds))


def test_little_is_no_reason_to_leave_what_is_preferred() -> None:
    trial = Trial([1, 2, 3], rounds=1, turn_length=2)
    run(trial, {1: 1.0, 2: 0.95, 3: 0.93})
    assert trial.best == 1
    trial = Trial([1, 2, 3], rounds=1, turn_length=2)
    run(trial, {1: 1.0, 2: 0.75, 3: 0.7})
    assert trial.best == 2
