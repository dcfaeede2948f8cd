"""Machines that exist only on paper: settings go in, the rates they would give come out, with or without noise.

When more is asked of the cores than there is, everyone gets the same part of what it asks for.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from spreeze.adapt.objective import Sample, objective
from spreeze.adapt.tune import Bounds
from spreeze.config.run_settings import RunSettings

MIN_UPDATES_PER_STEP = 0.1  # of a learner on a CPU: samplers wait for it
# Updates a second by batch size, as a data-centre GPU was measured to give.
FAST_GPU_HZ = {256: 6900.0, 1024: 5600.0, 4096: 4200.0, 8192: 3080.0, 16384: 2050.0, 32768: 1280.0}
LAUNCHES_HZ = 7500.0  # updates that one whole core of the host can start in a second
CPU_UPDATE_S, CPU_ROW_S, CPU_SPEEDUP = 2e-3, 8e-6, 0.6  # of one thread; k threads are k^0.6 times as fast
THREADS = (1, 2, 3, 4, 6, 8)


@dataclass(frozen=True)
class Gpu:
    """How fast updates are, as a multiple of FAST_GPU_HZ."""

    speed: float = 1.0
    row_cost: float = 1.0
    """Multiple of what a row costs: a small GPU is full with a small batch."""
    waits_for_host: bool = True
    """Whether the GPU idles while the host has no core; otherwise the host has queued enough for it to go on."""

    def update_s(self, batch_size: int) -> float:
        """Return the seconds of an update, by a line through the measured points on either side."""
        points = sorted(FAST_GPU_HZ)
        low = max((point for point in points[:-1] if point <= batch_size), default=points[0])
        high = points[points.index(low) + 1]
        low_s, high_s = 1 / FAST_GPU_HZ[low], 1 / FAST_GPU_HZ[high]
        seconds = low_s + (high_s - low_s) * (batch_size - low) / (high - low)
        fixed_s = 1 / FAST_GPU_HZ[points[0]]
        return (fixed_s + (seconds - fixed_s) * self.row_cost) / self.speed


@dataclass(frozen=True)
class Machine:
    """A machine, the environment that runs on it and what else does."""

    name: str
    cores: int
    gpu: Gpu | None = None
    max_batch_size: int = 8192
    step_s: float = 30e-6
    """Seconds that an environment computes for one step."""
    sleep_s: float = 0.0
    """Seconds that it sleeps for one step."""
    policy_pass_s: float = 60e-6
    cache_envs: int = 48
    """Environments a sampler whose observations and actions stay in the cache."""
    other_cores: float = 0.0
    has_hyperthreads: bool = False
    """Whether a core is one of two threads of a real one, which together do 1.3 times the work of one."""

    def __str__(self) -> str:
        return self.name

    @property
    def bounds(self) -> Bounds:
        """Where a search may go."""
        return Bounds(
            samplers=(1, 2 * self.cores),
            envs_per_sampler=(4, 64),
            batch_size=(256, self.max_batch_size) if self.gpu else (64, 512),
            learner_threads=(1,) if self.gpu else tuple(k for k in THREADS if k <= self.cores),
            cores=self.cores,
            may_pin=self.cores >= 4,
        )

    @property
    def starts(self) -> dict[str, RunSettings]:
        """The static defaults, a start that uses little and one that uses too much."""
        if self.gpu:
            default = RunSettings(self.cores - 2, 32, 8192, 1)
            return {
                "defaults": default,
                "few": default._replace(samplers=1, batch_size=256),
                "many": default._replace(samplers=2 * self.cores),
            }
        threads = self.bounds.learner_threads
        default = RunSettings(max(1, self.cores // 4), 16, 128, threads[len(threads) // 2])
        return {
            "defaults": default,
            "few": RunSettings(1, 16, 64, threads[0]),
            "many": RunSettings(2 * self.cores, 16, 128, threads[-1]),
        }

    def sample(self, settings: RunSettings, noise: float, random_numbers: random.Random) -> Sample:
        """Measure: the three rates are off by independent errors, as large as noise says."""
        true = self.rates(settings)
        if not noise:
            return true
        sampling, update, frames = (max(0.1, 1.0 + noise * random_numbers.gauss(0.0, 1.0)) for _ in range(3))
        return Sample(
            true.sampling_hz * sampling,
            true.update_hz * update,
            true.update_frame_hz * frames,
            true.sampler_wait,
            true.idle_cores,
            true.other_cores,
        )

    @functools.cache  # noqa: B019 - machines are few, and asked for the same again and again
    def rates(self, settings: RunSettings) -> Sample:
        """Return what these settings truly give."""
        freely = self._rates(settings, 1.0)
        if self.gpu or freely.sampling_hz * MIN_UPDATES_PER_STEP <= freely.update_hz:
            return freely
        low, high = 0.0, 1.0  # the share of their time that samplers work: more of it, more steps and fewer updates
        for _ in range(40):
            middle = (low + high) / 2
            tried = self._rates(settings, middle)
            too_many = tried.sampling_hz * MIN_UPDATES_PER_STEP > tried.update_hz
            low, high = (low, middle) if too_many else (middle, high)
        return self._rates(settings, low)

    def _rates(self, settings: RunSettings, working: float) -> Sample:
        """Return what comes out when samplers work this share of their time, and wait for the rest."""
        envs = settings.envs_per_sampler
        policy_s = self.policy_pass_s / envs + 1.2e-6 * (1 + (envs / self.cache_envs) ** 2)
        busy_s = self.step_s + policy_s
        sampling = settings.samplers * working * busy_s / (busy_s + self.sleep_s)
        learning, evaluating = settings.learner_threads, min(1.0, 0.1 * self.cores)
        if settings.pinned:
            own = min(learning, self.cores - 1)  # a core is left for everyone else
            share = min(1.0, (self.cores - own) / (sampling + evaluating + self.other_cores))
            learner_share = own / learning
        else:
            share = min(1.0, self.cores / (sampling + learning + evaluating + self.other_cores))
            learner_share = share
        used = learning * learner_share + share * (sampling + evaluating + self.other_cores)
        speed = 1.0
        if self.has_hyperthreads and used > self.cores / 2:
            speed = (self.cores / 2 + 0.3 * (used - self.cores / 2)) / used
        update_hz = self._update_hz(settings, learner_share * speed)
        return Sample(
            sampling_hz=settings.samplers * working / (busy_s / share / speed + self.sleep_s),
            update_hz=update_hz,
            update_frame_hz=update_hz * settings.batch_size,
            sampler_wait=1.0 - working,
            idle_cores=max(0.0, self.cores - used),
            other_cores=self.other_cores * share,
        )

    def _update_hz(self, settings: RunSettings, learner_share: float) -> float:
        if not self.gpu:
            speedup = settings.learner_threads**CPU_SPEEDUP
            return learner_share * speedup / (CPU_UPDATE_S + CPU_ROW_S * settings.batch_size)
        gpu_hz = 1 / self.gpu.update_s(settings.batch_size)
        return gpu_hz * learner_share if self.gpu.waits_for_host else min(gpu_hz, LAUNCHES_HZ * learner_share)

    @functools.cached_property
    def best(self) -> RunSettings:
        """The best of all allowed settings, found by looking at each."""
        return max(self._allowed(), key=lambda settings: objective(self.rates(settings)))

    def share_of_best(self, settings: RunSettings) -> float:
        """Return how good settings truly are, 1 for the best."""
        return objective(self.rates(settings)) / objective(self.rates(self.best))

    def _allowed(self) -> Iterator[RunSettings]:
        bounds = self.bounds
        return itertools.starmap(
            RunSettings,
            itertools.product(
                range(bounds.samplers[0], bounds.samplers[1] + 1),
                doublings(bounds.envs_per_sampler),
                doublings(bounds.batch_size),
                bounds.learner_threads,
                (False, True) if bounds.may_pin else (False,),
            ),
        )


def doublings(ends: tuple[int, int]) -> list[int]:
    """Return the low end, twice it, and so on up to the high end."""
    return [ends[0] * 2**power for power in range(int(math.log2(ends[1] // ends[0])) + 1)]
