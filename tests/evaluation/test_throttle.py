"""When the next evaluation is due: CPU time counts, also that of an environment's processes, and waiting does not."""

from __future__ import annotations

import subprocess
import sys
import time

from spreeze.evaluation.throttle import MAX_MACHINE_SHARE, Throttle

SPENT_S = 0.3
BURN = f"import time\nwhile time.process_time() < {SPENT_S}: pass\n"


def paused_s(throttle: Throttle, began: float) -> float:
    """Return the time that is set from the beginning of an evaluation to that of the next."""
    return throttle.due_at - began


def test_an_evaluation_that_waits_is_followed_by_the_next_at_once() -> None:
    throttle = Throttle(interval_s=0.0, cores=2)
    assert throttle.is_due
    throttle.begin()
    time.sleep(SPENT_S)  # as an environment does: it is what is measured
    throttle.end()
    assert throttle.is_due


def test_an_evaluation_that_computes_takes_a_share_of_the_cores() -> None:
    for cores in (2, 8):
        throttle, began, cpu_began = Throttle(0.0, cores), time.monotonic(), time.process_time()
        throttle.begin()
        while time.process_time() < cpu_began + SPENT_S:
            pass
        throttle.end()
        assert paused_s(throttle, began) >= SPENT_S / (MAX_MACHINE_SHARE * cores) * 0.95


def test_processes_of_the_environment_count() -> None:
    throttle, began = Throttle(0.0, 2), time.monotonic()
    throttle.begin()
    subprocess.run([sys.executable, "-c", BURN], check=True)
    throttle.end()
    assert paused_s(throttle, began) >= SPENT_S / (MAX_MACHINE_SHARE * 2) * 0.9  # known in ticks of 10 ms


def test_evaluations_keep_their_interval() -> None:
    throttle, began = Throttle(interval_s=60.0, cores=2), time.monotonic()
    throttle.begin()
    throttle.end()
    assert paused_s(throttle, began) >= 60.0
    assert not throttle.is_due
