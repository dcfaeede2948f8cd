from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from spreeze.config.run_settings import RunSettings
from spreeze.host.cores import allowed_cores, leaving_a_core, take_own_core
from spreeze.supervision.placement import Placement

SETTINGS = RunSettings(samplers=1, envs_per_sampler=1, batch_size=64, learner_threads=0)
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(allowed_cores()) < 2, reason="there are no two cores to tell apart"
)


@pytest.fixture
def pid() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process.pid
    process.kill()
    process.wait()


def in_a_thread(call: Callable[[], set[int]]) -> set[int]:
    """Return what a call returns in a thread of its own, which may change where it runs."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(call).result()


def own_core() -> set[int]:
    take_own_core(urgency=1)
    return os.sched_getaffinity(0)


def test_the_sampler_of_a_robot_takes_a_core_that_all_others_leave(pid: int) -> None:
    cores, niceness = allowed_cores(), os.getpriority(os.PRIO_PROCESS, pid)
    own = in_a_thread(own_core)
    assert own == {cores[-1]}
    placement = Placement()
    placement.use(SETTINGS, learners=1, is_realtime=True)
    placement.place(pid, is_learner=True, is_sampler=False)
    assert os.sched_getaffinity(pid) == set(cores) - own
    assert os.getpriority(os.PRIO_PROCESS, pid) == max(5, niceness)
    placement.place(pid, is_learner=False, is_sampler=True)  # what its environment starts may use all
    assert sorted(os.sched_getaffinity(pid)) == cores
    with leaving_a_core(is_realtime=True):
        assert os.sched_getaffinity(0) == set(cores) - own
    assert allowed_cores() == cores
    with leaving_a_core(is_realtime=False):
        assert allowed_cores() == cores


def test_other_runs_use_all_cores_with_the_usual_priority(pid: int) -> None:
    placement, niceness = Placement(), os.getpriority(os.PRIO_PROCESS, pid)
    placement.use(SETTINGS, learners=1, is_realtime=False)
    for is_learner in (True, False):
        placement.place(pid, is_learner, is_sampler=not is_learner)
        assert sorted(os.sched_getaffinity(pid)) == allowed_cores()
        assert os.getpriority(os.PRIO_PROCESS, pid) == niceness


def test_learner_and_samplers_are_kept_apart_where_that_is_wanted(pid: int) -> None:
    placement, cores = Placement(), allowed_cores()
    placement.use(SETTINGS._replace(learner_threads=1, pinned=True), learners=1, is_realtime=False)
    placement.place(pid, is_learner=True, is_sampler=False)
    assert sorted(os.sched_getaffinity(pid)) == cores[:1]
    placement.place(pid, is_learner=False, is_sampler=True)
    assert sorted(os.sched_getaffinity(pid)) == cores[1:]
