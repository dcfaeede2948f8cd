from __future__ import annotations

import pickle
import subprocess
import sys
import time

import numpy as np
import pytest

from spreeze.channels.metrics import LEARNER, MAX_SAMPLERS, SAMPLER, MetricsChannel

GUARD_S = 60.0  # ends a test that would hang; nothing is asserted about time
COUNTS = 200_000

SAMPLER_PROGRAM = """
import pickle, sys
metrics, index = pickle.load(sys.stdin.buffer)
record = metrics.samplers[index : index + 1]
record["env_steps"] += 16 * (index + 1)
record["return_sum"] += -1.5 * (index + 1)
record["episodes"] = 7
assert metrics.learner["updates"][0] == 123
"""

# The lower and the upper half of each number are equal: half a number would show.
COUNTER_PROGRAM = """
import pickle, sys
metrics, counts = pickle.load(sys.stdin.buffer)
updates = metrics.learner["updates"]
for _ in range(counts):
    updates += 2**32 + 1
"""


@pytest.fixture
def metrics() -> MetricsChannel:
    return MetricsChannel()


def start(program: str, metrics: MetricsChannel, argument: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", program], stdin=subprocess.PIPE, pass_fds=metrics.descriptors
    )
    assert process.stdin is not None
    pickle.dump((metrics, argument), process.stdin)
    process.stdin.close()
    return process


def test_everything_starts_at_zero(metrics: MetricsChannel) -> None:
    for name in LEARNER.names or ():
        assert not metrics.learner[name].any()
    assert metrics.samplers.shape == (MAX_SAMPLERS,)
    for name in SAMPLER.names or ():
        assert not metrics.samplers[name].any()


def test_records_share_no_memory(metrics: MetricsChannel) -> None:
    metrics.learner["updates"] = 1
    metrics.samplers[0]["env_steps"] = 2
    metrics.samplers[MAX_SAMPLERS - 1]["env_steps"] = 3
    assert metrics.learner["updates"][0] == 1
    assert metrics.samplers["env_steps"].sum() == 5
    assert metrics.samplers["env_steps"][1:-1].sum() == 0
    assert sum(float(metrics.learner[name].sum()) for name in LEARNER.names or ()) == 1


def test_numbers_are_aligned_so_that_none_can_be_torn(metrics: MetricsChannel) -> None:
    for record in (metrics.learner, metrics.samplers):
        for name in record.dtype.names or ():
            assert record[name].dtype.itemsize == 8
            assert record[name].__array_interface__["data"][0] % 8 == 0
            assert record[name].strides[0] % 8 == 0


def test_two_views_show_the_same_counters(metrics: MetricsChannel) -> None:
    view = metrics.samplers["env_steps"]
    metrics.samplers[3]["env_steps"] = 4
    assert view[3] == 4


def test_counters_of_all_processes_are_seen(metrics: MetricsChannel) -> None:
    metrics.learner["updates"] = 123
    processes = [start(SAMPLER_PROGRAM, metrics, index) for index in range(3)]
    assert [process.wait(GUARD_S) for process in processes] == [0, 0, 0]
    assert metrics.samplers["env_steps"][:4].tolist() == [16, 32, 48, 0]
    assert metrics.samplers["return_sum"].sum() == -9.0
    assert metrics.samplers["episodes"][:4].tolist() == [7, 7, 7, 0]


def test_counter_only_rises_and_is_never_torn_while_it_is_written(metrics: MetricsChannel) -> None:
    updates = metrics.learner["updates"]
    process = start(COUNTER_PROGRAM, metrics, COUNTS)
    read = [0]
    guard = time.monotonic() + GUARD_S
    while read[-1] < COUNTS * (2**32 + 1) and time.monotonic() < guard:
        read.append(int(updates[0]))
    assert process.wait(GUARD_S) == 0
    seen = np.unique(np.array(read, np.int64))
    assert read == sorted(read)
    assert seen[-1] == COUNTS * (2**32 + 1)
    np.testing.assert_array_equal(seen >> 32, seen & 0xFFFFFFFF)


def test_counters_stay_readable_after_close(metrics: MetricsChannel) -> None:
    metrics.learner["updates"] = 5
    metrics.close()
    assert metrics.learner["updates"][0] == 5
