"""The clock of a real robot, on a time that only it moves."""

from __future__ import annotations

import pytest

from spreeze.channels.metrics import MetricsChannel
from spreeze.sampling.clock import SPIN_S, StepClock

PERIOD_S = 0.02
SLEEPS_LONGER_S = 0.00015


class Time:
    """Moves when somebody sleeps, and a little with each look."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.is_over = False
        self.metrics = MetricsChannel()
        self.clock = StepClock(
            1 / PERIOD_S, self.metrics.clock, lambda: self.is_over, now=self.look, sleep=self.sleep
        )

    def look(self) -> float:
        self.now += 1e-6
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds + SLEEPS_LONGER_S

    def start_step(self, takes_s: float) -> float:
        """Return when the next step starts, counted from the first one."""
        assert self.clock.wait()
        started_at = self.now
        self.now += takes_s
        return started_at - 1000.0

    def record(self, name: str) -> float:
        return float(self.metrics.clock[name][0])


def test_steps_start_at_absolute_deadlines_however_long_they_take() -> None:
    time = Time()
    starts = [time.start_step(takes_s) for takes_s in (0.001, 0.015, 0.0199, 0.0, 0.01)]
    assert starts == pytest.approx([PERIOD_S * k for k in range(5)], abs=2e-5)
    assert SLEEPS_LONGER_S < SPIN_S
    assert time.record("steps") == 4  # the first of an episode has no deadline
    assert time.record("late_steps") == 0
    assert 0 < time.record("longest_s") < 2e-5
    lateness = time.metrics.clock["lateness_s"][0]
    assert (lateness[:4] > 0).all()
    assert not lateness[4:].any()


def test_a_step_that_is_a_little_late_starts_at_once_and_delays_no_other() -> None:
    time = Time()
    starts = [time.start_step(takes_s) for takes_s in (0.0215, 0.001, 0.001)]
    assert starts == pytest.approx([0.0, 0.0215, 0.04], abs=2e-5)
    assert time.record("late_steps") == 0
    assert time.record("longest_s") == pytest.approx(0.0015, abs=2e-5)


def test_after_a_step_that_took_too_long_the_next_one_starts_at_a_whole_deadline() -> None:
    time = Time()
    starts = [time.start_step(takes_s) for takes_s in (0.001, 0.055, 0.001, 0.001)]
    assert starts == pytest.approx([0.0, 0.02, 0.08, 0.10], abs=2e-5)
    assert (time.record("steps"), time.record("late_steps")) == (3, 1)
    assert time.record("longest_s") == pytest.approx(0.04, abs=2e-5)  # from the deadline that it had


def test_the_clock_starts_again_after_a_reset() -> None:
    time = Time()
    time.start_step(0.005)
    time.start_step(7.0)  # with the reset
    time.clock.restart()
    starts = [time.start_step(0.001) for _ in range(3)]
    assert starts == pytest.approx([7.02, 7.04, 7.06], abs=3e-5)
    assert time.record("late_steps") == 0


def test_a_wait_ends_when_the_sampler_is_to_end() -> None:
    time = Time()
    time.start_step(0.001)
    time.is_over = True
    assert not time.clock.wait()
    time.clock.restart()
    assert not time.clock.wait()
    assert time.record("steps") == 0
