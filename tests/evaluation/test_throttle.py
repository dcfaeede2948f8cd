"""When the next evaluation is due: CPU time counts, also that of an environment's processes, and waiting does not."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from spreeze.evaluation.throttle import EARLY_POINTS, EARLY_S, MAX_MACHINE_SHARE, Throttle

SPENT_S = 0.3
BURN = f"import time\nwhile time.process_time() < {SPENT_S}: pass\n"


def paused_s(throttle: Throttle, began: float) -> float:
    """Return the time that is set from the beginning of an evaluation to that of the next."""
    return throttle.due_at - began


def test_an_evaluation_that_waits_is_followed_by_the_next_at_once() -> None:
    throttle = Throttle(interval_s=0.0, cores=2, started_at=time.monotonic())
    assert throttle.is_due
    throttle.begin()
    time.sleep(SPENT_S)  # as an environment does: it is what is measured
    throttle.end()
    assert throttle.is_due


def test_an_evaluation_that_computes_takes_a_share_of_the_cores() -> None:
    for cores in (2, 8):
        began, cpu_began = time.monotonic(), time.process_time()
        throttle = Throttle(0.0, cores, began)
        throttle.begin()
        while time.process_time() < cpu_began + SPENT_S:
            pass
        throttle.end()
        assert paused_s(throttle, began) >= SPENT_S / (MAX_MACHINE_SHARE * cores) * 0.95


def test_processes_of_the_environment_count() -> None:
    began = time.monotonic()
    throttle = Throttle(0.0, 2, began)
    throttle.begin()
    subprocess.run([sys.executable, "-c", BURN], check=True)
    throttle.end()
    assert paused_s(throttle, began) >= SPENT_S / (MAX_MACHINE_SHARE * 2) * 0.9  # known in ticks of 10 ms


def test_evaluations_keep_their_interval() -> None:
    began = time.monotonic()
    throttle = Throttle(interval_s=60.0, cores=2, started_at=began)
    throttle.begin()
    throttle.end()
    assert paused_s(throttle, began) >= 60.0
    assert not throttle.is_due


# On two cores, each of these evaluations is paid for by two seconds of the share.
COST_S = 2 * MAX_MACHINE_SHARE * 2


@pytest.mark.parametrize(
    ("began", "due"),
    [
        ([0.0], [2.0]),  # nothing was saved
        ([5.0], [6.0]),  # five seconds were: only the interval is kept
        ([5.0, 6.0, 7.0, 8.0, 9.0], [6.0, 7.0, 8.0, 9.0, 10.0]),
        ([5.0, 6.0, 7.0, 8.0, 9.0, 10.0], [6.0, 7.0, 8.0, 9.0, 10.0, 12.0]),  # and spent
        ([5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0], [6.0, 7.0, 8.0, 9.0, 10.0, 12.0, 14.0]),
        # A pause of any length saves no more than ten seconds.
        ([1000.0 + i for i in range(11)], [*(1001.0 + i for i in range(10)), 1012.0]),
    ],
)
def test_what_was_not_used_can_be_used_later(began: list[float], due: list[float]) -> None:
    throttle, found = Throttle(interval_s=1.0, cores=2, started_at=0.0), []
    for began_at in began:
        throttle.charge(began_at, COST_S)
        found.append(throttle.due_at)
    assert found == pytest.approx(due)


@pytest.mark.parametrize(
    ("cost_s", "points"), [(0.5 * COST_S, 115), (5 * COST_S, EARLY_POINTS - 1), (20 * COST_S, 5)]
)
def test_a_curve_whose_points_are_expensive_gets_more_of_them_in_its_first_two_minutes(
    cost_s: float, points: int
) -> None:
    throttle, began = Throttle(interval_s=1.0, cores=2, started_at=0.0), [5.0]
    while began[-1] < 5 * EARLY_S:
        throttle.charge(began[-1], cost_s)
        began.append(throttle.due_at)
    early = [at for at in began if at < EARLY_S]
    assert len(early) == points  # by the usual share: 115, 12 and 3
    late = [at for at in began if at >= 2 * EARLY_S]
    assert late[1] - late[0] == pytest.approx(max(1.0, cost_s / (MAX_MACHINE_SHARE * 2)))
