"""Adapts a running training: measures it, asks `tune` what to do, and has the workers do it.

In: counters and CPU times of the run's processes. Out: changed settings, and an event with the reason for each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, Protocol

import psutil
from numpy.typing import NDArray

from spreeze.adapt import tune
from spreeze.adapt.plan import Plan, plan_bounds
from spreeze.adapt.tune import Bounds, Decision, Sample, Search
from spreeze.channels import Channels
from spreeze.channels.counters import Reading, read_counters
from spreeze.config import Config
from spreeze.config.run_settings import RunSettings
from spreeze.host.hardware import CoreMeter, CoreUse, Machine, free_gpu_bytes, usable_memory_bytes

SETTLE_S = 0.5  # after a change: caches, clocks, and rows that were already on their way
SAMPLE_S, MAX_SAMPLE_S = 0.5, 5.0
# A sample is longer where so little happens that single steps and updates would show as noise.
SAMPLE_VECTOR_STEPS, SAMPLE_UPDATES = 8, 20
MEMORY_SHARE = 0.5  # of what is free, that a change may take: the estimate may be wrong by a factor
MAX_START_S = 60.0  # for new samplers to make their first step: what takes longer is not worth trying again
# Bytes of an update for each row of a batch and each unit of the networks: activations of actor, critics and targets,
# their gradients, and as much again for captured copies. From above: 140 KB a row where 36 KB were seen.
UPDATE_BYTES_A_UNIT = 256

RecordEvent = Callable[..., None]
"""Notes an event of the run: kind, reason, and details by keyword."""
Remember = Callable[[RunSettings], None]


class Workforce(Protocol):
    """The processes of a run, as far as an adaptation measures and changes them."""

    started_at: float

    @property
    def channels(self) -> Channels:
        """Their channels."""
        ...

    @property
    def samplers_at_work(self) -> int:
        """Samplers that were not dismissed and have not failed."""
        ...

    @property
    def failure(self) -> str | None:
        """Why the samplers that are wanted cannot all be had."""
        ...

    @property
    def batch_limit(self) -> int | None:
        """The largest batch that fits the learner's devices; None while none was too large."""
        ...

    def learner_counters(self) -> list[NDArray[Any]]:
        """Return the counters of each process of the learner."""
        ...

    def pids_by_role(self) -> dict[str, list[int]]:
        """Return the processes of each role."""
        ...

    def has_reached(self, settings: RunSettings) -> bool:
        """Say whether these settings are in force."""
        ...

    def use(self, settings: RunSettings) -> None:
        """Work with these settings from now on."""
        ...


class Gauge:
    """Samples of a run, each over a window in which nothing was changed."""

    def __init__(self, workers: Workforce) -> None:
        self._workers = workers
        self._cores = CoreMeter()
        self._start: Reading | None = None
        self._quiet_since: float | None = None

    def restart(self) -> None:
        """Forget the window that has begun: something was changed."""
        self._start = self._quiet_since = None

    def sample(self, settings: RunSettings, now: float) -> Sample | None:
        """Return what the window since the last sample gave, once it is long enough."""
        if not self._workers.has_reached(settings):
            self.restart()
            return None
        self._quiet_since = self._quiet_since or now
        if now < self._quiet_since + SETTLE_S:
            return None
        if self._start is None:
            self._begin(self._read())
            return None
        start, end = self._start, self._read()
        seconds = end.at - start.at
        steps, updates = end.env_steps - start.env_steps, end.updates - start.updates
        is_telling = updates >= SAMPLE_UPDATES and steps >= (
            SAMPLE_VECTOR_STEPS * settings.samplers * settings.envs_per_sampler
        )
        if seconds < SAMPLE_S or (not is_telling and seconds < MAX_SAMPLE_S):
            return None
        use = self._begin(end)
        return Sample(
            sampling_hz=steps / seconds,
            update_hz=updates / seconds,
            update_frame_hz=(end.update_frames - start.update_frames) / seconds,
            sampler_wait=min(1.0, (end.waited_s - start.waited_s) / (seconds * settings.samplers)),
            idle_cores=use.idle_cores,
            other_cores=use.other_cores,
        )

    def _read(self) -> Reading:
        """Read the counters. Of a learner that is split, both sides count: the mean of their updates."""
        sides = self._workers.learner_counters()
        updates, frames = (
            sum(int(side[name]) for side in sides) // len(sides) for name in ("updates", "update_frames")
        )
        return replace(read_counters(self._workers.channels.metrics), updates=updates, update_frames=frames)

    def _begin(self, reading: Reading) -> CoreUse:
        self._start = reading
        return self._cores.read(self._workers.pids_by_role())


class Adaptation:
    """One run's search for the best settings."""

    is_over = False  # a run ends by its limits, not because its settings were found

    def __init__(
        self, workers: Workforce, plan: Plan, asked: Config, machine: Machine, tell: RecordEvent, remember: Remember
    ) -> None:
        self._workers, self._tell, self._remember = workers, tell, remember
        self._bounds, self._settings = plan_bounds(plan, asked, machine), plan.settings
        self._search = None if plan.recalled is None else tune.settled(plan.settings)
        learning = plan.config.learning
        self._devices, self._units = (
            {learning.device_of(role) for role in learning.learner_roles},
            sum(learning.hidden),
        )
        self._gauge = Gauge(workers)
        self._changed_at = time.monotonic()
        self._may_try_at = workers.started_at + asked.adaptation.adapt_after_s

    @property
    def best(self) -> RunSettings | None:
        """The best settings so far; None before the first sample."""
        return None if self._search is None else self._search.best

    def turn(self, now: float) -> None:
        """Look at the run; decide and act once there is enough to decide on."""
        if self._search is None:
            sides = self._workers.learner_counters()
            if not all(side["is_steady"] for side in sides):
                return  # the learner is still finding its own way to compute
            threads = max(int(side["learner_threads"]) for side in sides)
            self._search = Search.begin(self._settings._replace(learner_threads=threads))
            self._workers.use(self._search.current)
        if self._is_refused(self._search) or now < self._may_try_at:
            return
        sample = self._gauge.sample(self._search.current, now)
        if sample is None:
            if now > self._changed_at + MAX_START_S:
                self._give_up(self._search, f"not in force after {MAX_START_S:.0f} s")
            return
        self._changed_at = now
        self._search, decision = tune.step(self._search, sample, self._affordable(self._search.current))
        if decision is not None:
            self._act(decision, sample)

    def _act(self, decision: Decision, sample: Sample | None) -> None:
        measured: dict[str, object] = {}
        if sample is not None:
            measured = {"sample": asdict(sample), "objective": round(tune.objective(sample), 1)}
        self._tell("adapt", decision.reason, decision=decision.kind, settings=decision.settings._asdict(), **measured)
        if decision.kind in ("try", "return"):
            self._workers.use(decision.settings)
            self._gauge.restart()
        elif decision.kind == "settle" and self._search is not None and self._search.is_of_a_calm_machine:
            self._remember(decision.settings)

    def _is_refused(self, search: Search) -> bool:
        """Go on without what the machine has refused: a sampler that could not be had, a batch that did not fit."""
        limit = self._workers.batch_limit
        possible = search.current
        if self._workers.failure is not None:
            possible = possible._replace(samplers=max(1, self._workers.samplers_at_work))
        if limit is not None and limit < possible.batch_size:
            possible = possible._replace(batch_size=limit)
        if possible == search.current:
            return False
        reason = self._workers.failure or f"batches of more than {limit} do not fit"
        if search.current != search.best:
            self._give_up(search, reason)
        else:  # what was the best so far is no longer to be had
            self._search = Search.begin(possible)
            self._bounds = replace(self._bounds, samplers=_capped(self._bounds.samplers, possible.samplers))
            self._act(Decision("return", possible, f"from here on {tune.describe(possible)}: {reason}"), None)
        return True

    def _give_up(self, search: Search, reason: str) -> None:
        """Go back from settings that do not come into force."""
        self._changed_at = time.monotonic()
        if search.current != search.best:
            told = f"undone {tune.describe(search.current)}: {reason}"
            self._search = replace(search, current=search.best)
            self._act(Decision("return", search.best, told), None)

    def _affordable(self, now: RunSettings) -> Bounds:
        """Narrow the bounds to what fits the memory that is free now."""
        bounds = self._bounds
        free = int(MEMORY_SHARE * usable_memory_bytes())
        each = _sampler_bytes(self._workers)
        most_samplers = now.samplers + free // each
        most_envs = bounds.envs_per_sampler[1] if free > now.samplers * each else now.envs_per_sampler
        free_on_device = min(
            free if device == "cpu" else int(MEMORY_SHARE * (free_gpu_bytes(device) or 0)) for device in self._devices
        )
        most_rows = max(now.batch_size, free_on_device // (UPDATE_BYTES_A_UNIT * self._units))
        limit = self._workers.batch_limit
        return replace(
            bounds,
            samplers=_capped(bounds.samplers, most_samplers),
            envs_per_sampler=_capped(bounds.envs_per_sampler, most_envs),
            batch_size=_capped(bounds.batch_size, most_rows if limit is None else min(most_rows, limit)),
        )


def _capped(bounds: tuple[int, int], most: int) -> tuple[int, int]:
    low, high = bounds
    return low, max(low, min(high, most))


def _sampler_bytes(workers: Workforce) -> int:
    sizes = [2**20]  # at the least, so that a division is possible
    for pid in workers.pids_by_role().get("sampler", [])[:1]:
        try:
            sizes.append(int(psutil.Process(pid).memory_info().rss))
        except psutil.Error:
            continue  # it has just ended
    return max(sizes)
