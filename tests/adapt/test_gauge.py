"""Samples of a run: what its processes use is told apart by role."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any, cast

from spreeze.adapt.adaptation import Gauge, Workforce
from spreeze.adapt.objective import Sample
from spreeze.channels.counters import Reading
from spreeze.config.run_settings import RunSettings

SETTINGS = RunSettings(samplers=1, envs_per_sampler=1, batch_size=64, learner_threads=1)
GUARD_S = 60.0  # against a hang, not an expectation


class CountingGauge(Gauge):
    """A gauge of a run that makes 1,000 steps and 100 updates between two readings."""

    readings = 0

    def read(self) -> Reading:
        self.readings += 1
        return Reading(time.monotonic(), 1000 * self.readings, 100 * self.readings, 6400 * self.readings, 0, 0.0, 0.0)


def sample_beside(busy_role: str) -> Sample:
    """Return a sample during which a process of this role has used a core."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        pids = {busy_role: [busy.pid]}
        channels = SimpleNamespace(machines=SimpleNamespace(samplers_at_work=0))
        workers: Any = SimpleNamespace(
            pids_by_role=lambda: pids, has_reached=lambda _settings: True, channels=channels
        )
        gauge, until = CountingGauge(cast("Workforce", workers)), time.monotonic() + GUARD_S
        while time.monotonic() < until:
            sample = gauge.sample(SETTINGS, time.monotonic())
            if sample is not None:
                return sample
            time.sleep(0.01)
        raise AssertionError(f"no sample in {GUARD_S:.0f} s")
    finally:
        busy.kill()
        busy.wait()


def test_a_sample_tells_what_the_evaluator_uses() -> None:
    assert sample_beside("evaluator").evaluator_cores > 0.0
    assert sample_beside("sampler").evaluator_cores == 0.0
