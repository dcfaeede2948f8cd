"""What a run is judged by: samples of its rates go in, one number comes out.

The objective is the geometric mean of three rates,

    J = (sampling_hz * useful_hz * useful_hz * batch_size) ** (1/3),

where useful_hz is update_hz as long as there is no more than one update for each environment step: then it is the
geometric mean of the three rates that a run is measured by, and twice the sampling rate is worth as much as twice the
batch size, and either as much as 1.41 times the updates. Updates beyond that learn ever less from the same steps, and
at most two for each step count. So with slow environments, experience is what is scarce: twice the steps are then
worth up to twice the objective, and more updates next to nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FULL_UPDATES_PER_STEP = 1.0  # what the papers use: up to here, each update counts as one
OUTLIERS_FROM = 3  # samples from which on the extremes are left out
RATE_FLOOR = 1e-3  # the logarithm needs a positive rate, also for a window without a step or an update


@dataclass(frozen=True)
class Sample:
    """Measurements of a run over a short window."""

    sampling_hz: float
    update_hz: float
    update_frame_hz: float
    sampler_wait: float
    """Share of their time that samplers waited, for the learner or for room in their rings."""
    idle_cores: float
    other_cores: float
    """Cores that other programs use."""
    evaluator_cores: float = 0.0
    """Cores that the run's evaluator uses."""


def objective(sample: Sample) -> float:
    """Return J."""
    return math.exp(log_objective(sample))


def log_objective(sample: Sample) -> float:
    """Return ln J."""
    sampling, updates, frames = (
        max(rate, RATE_FLOOR) for rate in (sample.sampling_hz, sample.update_hz, sample.update_frame_hz)
    )
    worth = useful_updates(sampling, updates) / updates  # of an update, and of each of its rows
    return (math.log(sampling) + math.log(updates * worth) + math.log(frames * worth)) / 3


def useful_updates(sampling_hz: float, update_hz: float) -> float:
    """Return how many updates a second count: all, up to one for each step; then ever less of them, up to two."""
    full = FULL_UPDATES_PER_STEP * sampling_hz
    # The curve and its slope are continuous where it begins to bend.
    return update_hz if update_hz <= full else full * (2.0 - full / update_hz)


def mean_log(samples: Sequence[Sample]) -> float:
    """Return the mean of ln J without its extremes, at least one on either side: an outlier must not decide."""
    values = sorted(map(log_objective, samples))
    cut = max(1, len(values) // 6) if len(values) >= OUTLIERS_FROM else 0
    return statistics.fmean(values[cut : len(values) - cut])


def noise_of(groups: Iterable[Sequence[Sample]]) -> float:
    """Return the standard deviation of ln J between samples of the same settings, robust to outliers."""
    deviations: list[float] = []
    for samples in groups:
        values = [log_objective(sample) for sample in samples]
        middle = statistics.median(values)
        deviations += [abs(value - middle) for value in values]
    # For normally distributed errors, the standard deviation is 1.48 times the median absolute deviation.
    return 1.48 * statistics.median(deviations or [0.0])
