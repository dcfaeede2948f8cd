"""The rule by which processes are restarted, on simulated failures."""

from __future__ import annotations

import pytest

from spreeze.supervision.restart_policy import GAP_S, PAUSES_S, RARELY_S, Attention, RestartPolicy

PATIENCE = 5


def pause_s(restarts: RestartPolicy, now: float) -> float:
    """Return how long the next start has to wait, to a hundredth."""
    return next(wait / 100 for wait in range(100_000) if restarts.may_start(now + wait / 100))


def fail(restarts: RestartPolicy, times: int, now: float = 0.0) -> float:
    """Let lives of a second fail one after the other, each started as soon as it may be; return the moment after."""
    for _ in range(times):
        started_at = now + pause_s(restarts, now)
        now = started_at + 1.0
        restarts.record_failure(now, started_at)
    return now


def test_nothing_has_failed_at_the_beginning() -> None:
    restarts = RestartPolicy(PATIENCE)
    assert restarts.may_start(0.0)
    assert not restarts.has_given_up


def test_pauses_grow_to_half_a_minute() -> None:
    restarts, now, pauses = RestartPolicy(patience=100), 0.0, []
    for _ in range(12):
        now = fail(restarts, 1, now)
        pauses.append(pause_s(restarts, now))
    assert pauses[: len(PAUSES_S)] == list(PAUSES_S)
    assert pauses[0] == 0.0
    assert set(pauses[len(PAUSES_S) :]) == {30.0}


def test_what_always_fails_is_given_up_within_seconds() -> None:
    restarts = RestartPolicy(PATIENCE)
    now = fail(restarts, PATIENCE - 1)
    assert not restarts.has_given_up
    now = fail(restarts, 1, now)
    assert restarts.has_given_up
    assert now - PATIENCE * 1.0 < 5  # less what the lives themselves took
    assert pause_s(restarts, now) == RARELY_S


def test_a_productive_start_ends_a_row_of_failures() -> None:
    restarts = RestartPolicy(PATIENCE)
    now = fail(restarts, PATIENCE - 1)
    restarts.record_productive(started_at=now)
    assert restarts.unproductive == 0
    fail(restarts, PATIENCE - 1, now)
    assert not restarts.has_given_up


def test_a_process_that_is_productive_between_its_failures_is_restarted_for_ever() -> None:
    restarts, now = RestartPolicy(PATIENCE), 0.0
    for _ in range(5_000):
        started_at, now = now, now + 6.0
        restarts.record_productive(started_at)
        assert restarts.may_start(now)
        assert not restarts.has_given_up


def test_many_that_fail_together_count_as_one() -> None:
    restarts = RestartPolicy(PATIENCE)
    for moment in range(50):
        restarts.record_failure(now=1.0 + moment / 100, started_at=0.0)
    assert restarts.unproductive == 1
    assert not restarts.has_given_up


def test_one_that_always_fails_while_others_work_is_restarted_with_pauses_and_for_ever() -> None:
    restarts, now = RestartPolicy(PATIENCE), 0.0
    for _ in range(50):
        now = fail(restarts, 1, now)
        assert not restarts.has_given_up
        restarts.record_productive(started_at=-1.0)  # of one that was there before
    assert pause_s(restarts, now) == 30.0
    # Once those are gone too, the patience counts from there.
    fail(restarts, PATIENCE, now)
    assert restarts.has_given_up


def test_what_was_given_up_is_tried_rarely_and_may_recover() -> None:
    restarts = RestartPolicy(PATIENCE)
    restarts.give_up(now=1.0)
    assert restarts.has_given_up
    assert pause_s(restarts, 1.0) == RARELY_S
    fail(restarts, 1, 1.0)
    assert restarts.has_given_up
    restarts.record_productive(started_at=1.0 + RARELY_S + 2.0)
    assert not restarts.has_given_up


# --- silence ----------------------------------------------------------------------------------------------------


def look(attention: Attention, begin: float, end: float, hang_s: float) -> None:
    """Turn 20 times per second."""
    for tick in range(int(20 * (end - begin)) + 1):
        attention.turn(begin + tick / 20, hang_s)


def test_silence_that_was_seen_counts_whole() -> None:
    attention = Attention(0.0)
    look(attention, 0.0, 130.0, hang_s=120.0)
    assert attention.seen_s(125.0) == pytest.approx(125.0)


@pytest.mark.parametrize(("hang_s", "pause"), [(120.0, 3600.0), (120.0, GAP_S + 1), (1.0, 2.0)])
def test_after_a_pause_of_all_everyone_has_fresh_time(hang_s: float, pause: float) -> None:
    attention = Attention(0.0)
    look(attention, 0.0, 10.0, hang_s)
    attention.turn(10.0 + pause, hang_s)
    assert attention.seen_s(pause) == 0.0
    look(attention, 10.0 + pause, 10.0 + pause + 2 * hang_s, hang_s)
    # Who is still silent then hangs.
    assert attention.seen_s(pause + 2 * hang_s) > hang_s


def test_a_busy_supervisor_is_no_pause() -> None:
    attention = Attention(0.0)
    for turn in range(200):
        attention.turn(turn * 1.0, hang_s=120.0)
    assert attention.seen_s(150.0) == 150.0
