from __future__ import annotations

from spreeze.views.viewer import BURST_S, Allowance


class Clock:
    def __init__(self) -> None:
        self.now_s, self.used_s = 100.0, 7.0

    def allowance(self, share: float) -> Allowance:
        return Allowance(share, lambda: self.now_s, lambda: self.used_s)


def test_what_is_spent_has_to_be_earned() -> None:
    clock = Clock()
    allowance = clock.allowance(0.06)
    assert not allowance.is_spent()
    clock.used_s += 0.03  # of CPU time, for which half a second has to pass
    assert allowance.is_spent()
    clock.now_s += 0.49
    assert allowance.is_spent()
    clock.now_s += 0.02
    assert not allowance.is_spent()


def test_only_a_burst_is_saved_up() -> None:
    clock = Clock()
    allowance = clock.allowance(0.5)
    clock.now_s += 3600.0
    assert not allowance.is_spent()
    clock.used_s += BURST_S + 0.01
    assert allowance.is_spent()
    clock.now_s += 0.03
    assert not allowance.is_spent()


def test_in_the_long_run_the_share_is_kept() -> None:
    clock = Clock()
    allowance = clock.allowance(0.06)
    began_s, used_s = clock.now_s, clock.used_s
    for _ in range(10_000):
        clock.now_s += 0.01
        if not allowance.is_spent():
            clock.used_s += 0.02
    assert (clock.used_s - used_s) / (clock.now_s - began_s) < 0.0605
    assert (clock.used_s - used_s) / (clock.now_s - began_s) > 0.059
