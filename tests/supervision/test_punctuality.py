from __future__ import annotations

import numpy as np
import pytest

from spreeze.channels.metrics import KEPT_STEPS, MetricsChannel
from spreeze.supervision.punctuality import ClockReader


class Record:
    """What a sampler has written."""

    def __init__(self) -> None:
        self.clock = MetricsChannel().clock

    def add(self, *lateness_s: float) -> None:
        for each in lateness_s:
            steps = int(self.clock["steps"][0])
            self.clock["lateness_s"][0][steps % KEPT_STEPS] = each
            self.clock["steps"] += 1
            self.clock["late_steps"] += each > 0.002
            self.clock["longest_s"] = max(float(self.clock["longest_s"][0]), each)


def test_without_a_step_there_is_no_lateness() -> None:
    read = ClockReader(Record().clock).read()
    assert (read.steps, read.late_steps, read.last_second, read.run) == (0, 0, None, None)
    assert not read.waits_for_person


def test_lateness_is_that_of_the_window_and_of_the_run() -> None:
    record = Record()
    reader = ClockReader(record.clock)
    record.add(*[0.0001] * 98, 0.005, 0.007)
    first = reader.read()
    assert (first.steps, first.late_steps) == (100, 2)
    assert first.last_second is not None
    assert (first.last_second.p50_s, first.last_second.max_s) == (0.0001, 0.007)
    assert first.last_second.p99_s == pytest.approx(0.00502, abs=1e-4)
    record.add(*[0.0004] * 100)
    record.clock["waits_for_person"] = 1
    second = reader.read()
    assert second.waits_for_person
    assert second.last_second is not None
    assert second.run is not None
    assert (second.last_second.p99_s, second.last_second.max_s) == (0.0004, 0.0004)
    assert second.run.p50_s == pytest.approx(0.0004, rel=0.05)
    assert second.run.p99_s == pytest.approx(0.0004, rel=0.05)
    assert second.run.max_s == 0.007
    assert reader.read().last_second is None


def test_figures_of_the_run_are_near_to_those_of_all_numbers() -> None:
    record, rng = Record(), np.random.default_rng(0)
    reader, everything = ClockReader(record.clock), []
    for _ in range(20):
        lateness = rng.lognormal(-9, 1.5, 500).tolist()
        everything += lateness
        record.add(*lateness)
        read = reader.read()
    assert read.run is not None
    assert read.run.p50_s == pytest.approx(np.percentile(everything, 50), rel=0.05)
    assert read.run.p99_s == pytest.approx(np.percentile(everything, 99), rel=0.05)
    assert read.run.max_s == pytest.approx(max(everything), abs=1e-6)


def test_after_a_long_silence_the_newest_steps_are_read() -> None:
    record = Record()
    reader = ClockReader(record.clock)
    record.clock["lateness_s"][0][:] = 0.001
    record.clock["steps"] = 10 * KEPT_STEPS
    read = reader.read()
    assert read.steps == 10 * KEPT_STEPS
    assert read.last_second is not None
    assert read.last_second.p50_s == 0.001
