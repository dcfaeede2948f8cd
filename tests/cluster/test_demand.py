from __future__ import annotations

import pytest

from spreeze.cluster.demand import LITTLE, TOO_MUCH, WINDOW_S, Demand, Waits


class Samplers:
    """Samplers of a machine that can use so many of them; more only wait."""

    def __init__(self, useful: float, most: int = 16) -> None:
        self.demand, self.useful = Demand(most), useful
        self.now = self.waited_s = 0.0

    def window(self, link_s: float = 0.0) -> str | None:
        count = self.demand.samplers
        self.demand.turn(self.now, count, Waits(ring_s=self.waited_s, learner_s=1.0))
        self.now += WINDOW_S
        self.waited_s += WINDOW_S * max(0.0, count - self.useful)
        return self.demand.turn(self.now, count, Waits(ring_s=self.waited_s, link_s=link_s, learner_s=1.0))


@pytest.mark.parametrize("useful", [0.3, 1.0, 2.5, 4.0, 7.0])
def test_those_that_only_wait_are_not_asked_for_and_what_is_left_is_enough(useful: float) -> None:
    samplers = Samplers(useful)
    reason = samplers.window()
    assert reason is not None
    assert "learner is the bottleneck" in reason
    assert useful <= samplers.demand.samplers <= max(1, 2 * useful)
    assert samplers.window() is None  # it stays at that


def test_what_they_wait_for_is_named() -> None:
    reason = Samplers(2.0).window(link_s=3.0)
    assert reason is not None
    assert "the link is the bottleneck" in reason


def test_samplers_that_are_of_use_stay() -> None:
    samplers = Samplers(16.0)
    assert samplers.window() is None
    assert samplers.demand.samplers == 16


def test_more_are_asked_for_once_they_do_not_wait_any_more() -> None:
    samplers = Samplers(2.0)
    samplers.window()
    assert samplers.demand.samplers == 3
    samplers.useful = 100.0
    for expected in (6, 12, 16):
        assert samplers.window() is not None
        assert samplers.demand.samplers == expected
    assert samplers.window() is None


def test_a_window_in_which_samplers_come_or_leave_does_not_count() -> None:
    demand = Demand(4)
    demand.turn(0.0, 4, Waits())
    assert demand.turn(WINDOW_S / 2, 3, Waits(1000.0)) is None
    assert demand.turn(WINDOW_S, 4, Waits(1000.0)) is None  # a new one begins
    assert demand.samplers == 4


def test_after_a_change_samplers_wait_neither_too_much_nor_too_little() -> None:
    for useful in range(2, 8):
        samplers = Samplers(useful)
        samplers.window()
        share = 1 - useful / samplers.demand.samplers
        assert share <= TOO_MUCH
        assert share >= LITTLE or samplers.demand.samplers == samplers.demand.most or useful == 1
