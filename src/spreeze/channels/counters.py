"""Reads the counters of a run: rates are differences of two readings."""

from __future__ import annotations

import time
from dataclasses import dataclass

from spreeze.channels.metrics import MetricsChannel


@dataclass(frozen=True)
class Reading:
    """The counters of a run at one moment; rates are differences of two readings."""

    at: float
    env_steps: int
    updates: int
    update_frames: int
    episodes: int
    return_sum: float
    waited_s: float
    """Seconds that samplers have waited, for the learner or for room in their channels."""


def read_counters(metrics: MetricsChannel) -> Reading:
    """Read all counters now."""
    learner, samplers = metrics.learner[0], metrics.samplers
    return Reading(
        time.monotonic(),
        int(learner["rows_stored"]),
        int(learner["updates"]),
        int(learner["update_frames"]),
        int(samplers["episodes"].sum()),
        float(samplers["return_sum"].sum()),
        float(samplers["ring_wait_s"].sum() + samplers["ratio_wait_s"].sum()),
    )
