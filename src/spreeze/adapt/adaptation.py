"""Adapts a run to the machine: measures it, asks `tune` for a decision, and changes the workers' settings.

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
from spreeze.adapt.objective import Sample, objective
from spreeze.adapt.plan import Plan, adaptation_bounds
from spreeze.adapt.tune import Bounds, Decision, Search
from spreeze.adapt.wording import describe
from spreeze.channels import Channels
from spreeze.channels.control import RecordEvent
from spreeze.channels.counters import Reading, read_counters
from spreeze.config import Config
from spreeze.config.run_settings import RunSettings
from spreeze.host.hardware import CoreMeter, CoreUse, Machine, free_gpu_bytes, usable_memory_bytes

SETTLE_S = 0.5  # after a change: caches, clocks, and rows that are already in the rings
SAMPLE_S, MAX_SAMPLE_S = 0.5, 5.0
# A sample takes longer if steps and updates are so rare that single ones would show as noise.
SAMPLE_VECTOR_STEPS, SAMPLE_UPDATES = 8, 20
MEMORY_SHARE = 0.5  # of the free memory, that a change may take: the estimate may be off by a factor of two
MAX_START_S = 60.0  # for new samplers to make their first step: settings that take longer are given up
# Bytes that an update takes for each row of a batch and each unit of the networks: activations of actor, critics and
# targets, their gradients, and as much again for captured copies. An upper bound: 140 KB per row, measured were 36.
UPDATE_BYTES_PER_UNIT = 256

RememberSettings = Callable[[RunSettings], None]
"""Stores settings for later runs of the same task."""


class Workforce(Protocol):
    """What an adaptation needs of a run's processes: what it measures, and what it changes."""

    started_at: float

    @property
    def channels(self) -> Channels:
        """The channels between the processes."""
        ...

    @property
    def samplers_at_work(self) -> int:
        """The number of samplers that were not dismissed and have not failed."""
        ...

    @property
    def failure(self) -> str | None:
        """Why there are fewer samplers than wanted; None if there are not."""
        ...

    @property
    def batch_limit(self) -> int | None:
        """The largest batch that fits the learner's devices; None as long as every batch has fit."""
        ...

    def learner_counters(self) -> list[NDArray[Any]]:
        """Return the counters of each process of the learner."""
        ...

    def pids_by_role(self) -> dict[str, list[int]]:
        """Return the process ids of each role."""
        ...

    def has_reached(self, settings: RunSettings) -> bool:
        """Return whether these settings are in force."""
        ...

    def use(self, settings: RunSettings) -> None:
        """Change to these settings."""
        ...


class Gauge:
    """Takes samples of a run, each over a window in which no setting changed."""

    def __init__(self, workers: Workforce) -> None:
        self._workers = workers
        self._cores = CoreMeter()
        self._start: Reading | None = None
        self._quiet_since: float | None = None
        self._samplers_elsewhere = 0

    def restart(self) -> None:
        """Discard the current window: a setting was changed."""
        self._start = self._quiet_since = None

    def sample(self, settings: RunSettings, now: float) -> Sample | None:
        """Return a sample of the window since the last one; None if it is not long enough yet."""
        elsewhere = self._workers.channels.machines.samplers_at_work
        if not self._workers.has_reached(settings) or elsewhere != self._samplers_elsewhere:
            self._samplers_elsewhere = elsewhere  # a machine that joins or leaves changes all rates
            self.restart()
            return None
        self._quiet_since = self._quiet_since or now
        if now < self._quiet_since + SETTLE_S:
            return None
        if self._start is None:
            self._begin(self.read())
            return None
        start, end = self._start, self.read()
        seconds = end.at - start.at
        steps, updates = end.env_steps - start.env_steps, end.updates - start.updates
        samplers = max(1, settings.samplers + elsewhere)
        has_enough_events = updates >= SAMPLE_UPDATES and steps >= (
            SAMPLE_VECTOR_STEPS * samplers * settings.envs_per_sampler
        )
        if seconds < SAMPLE_S or (not has_enough_events and seconds < MAX_SAMPLE_S):
            return None
        use = self._begin(end)
        return Sample(
            sampling_hz=steps / seconds,
            update_hz=updates / seconds,
            update_frame_hz=(end.update_frames - start.update_frames) / seconds,
            sampler_wait=min(1.0, (end.waited_s - start.waited_s) / (seconds * samplers)),
            idle_cores=use.idle_cores,
            other_cores=use.other_cores,
            evaluator_cores=use.by_role.get("evaluator", 0.0),
        )

    def read(self) -> Reading:
        """Read the counters. The updates of a split learner are the mean of its two roles."""
        learners = self._workers.learner_counters()
        updates, frames = (
            sum(int(counters[name]) for counters in learners) // len(learners)
            for name in ("updates", "update_frames")
        )
        return replace(read_counters(self._workers.channels.metrics), updates=updates, update_frames=frames)

    def _begin(self, reading: Reading) -> CoreUse:
        self._start = reading
        return self._cores.read(self._workers.pids_by_role())


class Adaptation:
    """The search of one run for its best settings."""

    is_over = False  # the limits end a run, not the end of the search

    def __init__(
        self,
        workers: Workforce,
        plan: Plan,
        asked: Config,
        machine: Machine,
        record_event: RecordEvent,
        remember: RememberSettings,
    ) -> None:
        self._workers, self._record_event, self._remember = workers, record_event, remember
        self._bounds, self._settings = adaptation_bounds(plan, asked, machine), plan.settings
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
        """Measure the run; change its settings once there are enough samples for a decision."""
        if self._search is None:
            learners = self._workers.learner_counters()
            if not all(counters["is_steady"] for counters in learners):
                return  # the learner is still choosing its compute mode
            threads = max(int(counters["learner_threads"]) for counters in learners)
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
            measured = {"sample": asdict(sample), "objective": round(objective(sample), 1)}
        self._record_event(
            "adapt", decision.reason, decision=decision.kind, settings=decision.settings._asdict(), **measured
        )
        if decision.kind in ("try", "return"):
            self._workers.use(decision.settings)
            self._gauge.restart()
        elif decision.kind == "settle" and self._search is not None and self._search.has_settled_on_a_calm_machine:
            self._remember(decision.settings)

    def _is_refused(self, search: Search) -> bool:
        """Continue without what the machine has refused: a sampler that could not start, a batch that did not fit."""
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
        else:  # the best settings so far are no longer possible
            self._search = Search.begin(possible)
            self._bounds = replace(self._bounds, samplers=_capped(self._bounds.samplers, possible.samplers))
            self._act(Decision("return", possible, f"from here on {describe(possible)}: {reason}"), None)
        return True

    def _give_up(self, search: Search, reason: str) -> None:
        """Return to the best settings from ones that do not come into force."""
        self._changed_at = time.monotonic()
        if search.current != search.best:
            undone = f"undone {describe(search.current)}: {reason}"
            self._search = replace(search, current=search.best)
            self._act(Decision("return", search.best, undone), None)

    def _affordable(self, now: RunSettings) -> Bounds:
        """Return the bounds, narrowed to what fits into the memory that is free now."""
        bounds = self._bounds
        free = int(MEMORY_SHARE * usable_memory_bytes())
        sampler_bytes = _sampler_bytes(self._workers)
        most_samplers = now.samplers + free // sampler_bytes
        most_envs = bounds.envs_per_sampler[1] if free > now.samplers * sampler_bytes else now.envs_per_sampler
        free_on_device = min(
            free if device == "cpu" else int(MEMORY_SHARE * (free_gpu_bytes(device) or 0)) for device in self._devices
        )
        most_rows = max(now.batch_size, free_on_device // (UPDATE_BYTES_PER_UNIT * self._units))
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
    """Return the memory of one sampler, and at least a MB so that it can be divided by."""
    sizes = [2**20]
    for pid in workers.pids_by_role().get("sampler", [])[:1]:
        try:
            sizes.append(int(psutil.Process(pid).memory_info().rss))
        except psutil.Error:
            continue  # the sampler has just ended
    return max(sizes)
