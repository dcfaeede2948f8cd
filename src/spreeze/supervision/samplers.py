"""The samplers of a run: started, dismissed and replaced while all other processes continue.

In: how many are wanted, with how many environments each. Out: processes, and a warning about each that failed; where
every one fails (`restart_policy.py` has the rule), their failure is raised. The channel of a sampler goes to another
only after the learner has read it empty, so that no row that was written is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from spreeze.channels import Channels
from spreeze.channels.brief import name_of
from spreeze.config import SamplingConfig
from spreeze.config.run_settings import RunSettings
from spreeze.errors import ProcessFailed, one_line
from spreeze.host.hardware import resident_bytes
from spreeze.host.lifetime import CLOSE_GRACE_S
from spreeze.supervision.launch import Child, NamedMessage
from spreeze.supervision.restart_policy import SAMPLED_S, Attention, RestartPolicy

LEAVE_GRACE_S = 30.0  # for a sampler that is dismissed: nobody waits for it, and its step may be slow
EXIT_GRACE_S = 3.0  # for one that has raised and only has to end
MEMORY_INTERVAL_S = 1.0  # a look costs 20 microseconds per sampler
PATIENCE = 5  # starts in a row that lead to nothing: five take about six seconds

Start = Callable[[int, int, int], Child]
"""How one is started, from index, environments and generation."""


@dataclass
class _Sampler:
    """A sampler, from its start until its channel is free again."""

    child: Child
    envs: int
    started_at: float
    env_steps_before: int
    """What its counter stood at when it started: the sampler that had the channel before has counted there too."""
    rows_before: int
    """How many rows its channel had ever held, likewise."""
    is_tried: bool
    """Whether it was started to find out what is possible: until its first step, the run does not depend on it."""
    env_steps: int
    first_step_at: float | None = None
    last_step_at: float = 0.0
    leave_by: float | None = None
    """Until when it has to end, once it was dismissed or has failed."""

    @property
    def has_stepped(self) -> bool:
        """Whether it has made a step."""
        return self.first_step_at is not None

    @property
    def was_productive(self) -> bool:
        """Whether it has sampled long enough to be worth its start."""
        return self.first_step_at is not None and self.last_step_at - self.first_step_at >= SAMPLED_S


class _Failure(NamedTuple):
    reason: str
    traceback: str = ""
    has_raised: bool = False


class Samplers:
    """Starts, watches, replaces and dismisses them."""

    def __init__(self, channels: Channels, start: Start, close_first: bool = False) -> None:
        """close_first: whether they get time to close their environments before they are killed."""
        self._rings = channels.rings_here
        self._channels, self._start, self._close_first = channels, start, close_first
        self._samplers: dict[int, _Sampler] = {}
        self._generations = [0] * self._rings
        self._wanted: RunSettings | None = None
        self._is_trial = False
        self._restarts = RestartPolicy(PATIENCE)
        self._has_anyone_stepped = False
        self._memory_due_at = 0.0
        self._received: list[NamedMessage] = []
        self.failure: str | None = None
        """Why the samplers that are wanted cannot all be had; none is started until other settings are asked for."""

    # --- who is there ------------------------------------------------------------------------------------------

    @property
    def children(self) -> list[Child]:
        """All that are there, also those that are leaving."""
        return [sampler.child for sampler in self._samplers.values()]

    @property
    def at_work(self) -> int:
        """How many were not dismissed and have not failed."""
        return len(self._staying())

    @property
    def envs_at_work(self) -> int:
        """Environments of all that are there."""
        return sum(sampler.envs for sampler in self._samplers.values())

    @property
    def highest_index(self) -> int:
        """The highest index in use, -1 where there is none."""
        return max(self._samplers, default=-1)

    def has_reached(self, settings: RunSettings) -> bool:
        """Return whether as many as wanted are there and have stepped, and none leaves."""
        self._update_steps()
        return (
            self._wanted == settings
            and len(self._samplers) == self.at_work == settings.samplers
            and all(sampler.has_stepped for sampler in self._samplers.values())
        )

    def _staying(self) -> dict[int, _Sampler]:
        return {index: sampler for index, sampler in self._samplers.items() if sampler.leave_by is None}

    # --- come and go -------------------------------------------------------------------------------------------

    def start(self, index: int, envs: int) -> None:
        """Start one. Raises OSError where the system has no process left."""
        steps = int(self._channels.metrics.samplers["env_steps"][index])
        is_first = self._wanted is None  # before the size of a row is known, and with it where a channel's counter is
        rows = 0 if is_first else self._channels.transitions[index].written() or 0
        child = self._start(index, envs, self._generations[index])
        self._generations[index] += 1
        self._samplers[index] = _Sampler(child, envs, time.monotonic(), steps, rows, self._is_trial, env_steps=steps)

    def count_generations_from(self, first: int) -> None:
        """Give those that are started from now on other seeds than any of an earlier session."""
        self._generations = [first + generation for generation in self._generations]

    def brief_with(self, envs: int) -> None:
        """Give those that wait for their briefs this number of environments."""
        for sampler in self._samplers.values():
            sampler.envs = envs

    def want(self, settings: RunSettings) -> None:
        """Aim at these settings from now on; `turn` does what takes time."""
        before, self._wanted, self.failure = self._wanted, settings, None
        if before is not None and _samplers_of(before) != _samplers_of(settings):
            self._is_trial = True

    def turn(self) -> None:
        """Bring the samplers nearer to what is wanted."""
        if self._wanted is None:
            return
        self._reap()
        self._update_steps()
        wanted, staying = self._wanted, self._staying()
        fitting = [index for index, sampler in staying.items() if sampler.envs == wanted.envs_per_sampler]
        others = [index for index in staying if index not in fitting]
        stepping = sum(staying[index].has_stepped for index in fitting)
        if stepping >= wanted.samplers:
            self._is_trial = False
        for index in fitting[wanted.samplers :]:  # the newest leave first
            self._dismiss(index)
        free = [index for index in range(self._rings) if index not in self._samplers]
        missing = max(0, wanted.samplers - len(fitting))
        for index in free[:missing]:
            if self._may_start():
                self._start_another(index, wanted.envs_per_sampler)
        # Those with another number of environments stay until their successors step; with no ring free, one leaves.
        keep = max(0, wanted.samplers - stepping)
        if missing and not free and self.failure is None and len(staying) == len(self._samplers):
            keep = min(keep, len(others) - 1)
        for index in others[max(0, keep) :]:
            self._dismiss(index)

    def _may_start(self) -> bool:
        # A run without any sampler cannot go without the next.
        return (self.failure is None or not self._staying()) and self._restarts.may_start(time.monotonic())

    def _start_another(self, index: int, envs: int) -> None:
        try:
            self.start(index, envs)
        except OSError as error:
            reason = f"no further process can be started: {one_line(error)}"
            if self._is_trial and self._staying():
                self.failure = reason
                return
            now, name = time.monotonic(), name_of("sampler", index)
            self._restarts.record_failure(now, now)
            if self._restarts.has_given_up and not self._staying():
                raise ProcessFailed(name, reason) from error
            self._warn(name, f"cannot be started, which is tried again: {reason}")

    def _dismiss(self, index: int) -> None:
        self._samplers[index].leave_by = time.monotonic() + LEAVE_GRACE_S
        self._channels.control.dismiss(self._samplers[index].child.slot)

    def _reap(self) -> None:
        for index, sampler in list(self._samplers.items()):
            if sampler.leave_by is None:
                continue
            if sampler.child.process.poll() is None:
                if time.monotonic() > sampler.leave_by:
                    sampler.child.kill()  # hangs in a step; the rows it has written are whole
            elif self._channels.transitions[index].is_empty():
                self._settle(index, sampler)
                sampler.child.close()
                del self._samplers[index]

    def _settle(self, index: int, sampler: _Sampler) -> None:
        """Put the counters of a sampler that has ended right: it may have been killed between a row and its count."""
        counters = self._channels.metrics.samplers
        counters["policy_published_at"][index] = 0.0  # what does not act has no lag
        written = self._channels.transitions[index].written()
        if written is not None:
            # With transitions over several steps, some steps were counted and never written: whoever waits until
            # as many rows have arrived as there were steps would wait for ever.
            counters["env_steps"][index] = sampler.env_steps_before + written - sampler.rows_before

    # --- watch -------------------------------------------------------------------------------------------------

    def read_messages(self) -> Iterator[NamedMessage]:
        """Yield what samplers have sent since the last time, and warnings about those that have failed."""
        received, self._received = self._received, []
        yield from received

    def watch(self, limits: SamplingConfig, attention: Attention) -> None:
        """Take out those that have failed; raise their failure if the next ones would fail too."""
        self._update_steps()
        for sampler in list(self._samplers.values()):
            failure = self._failure_of(sampler, limits, attention)
            if failure is not None:
                self._take_out(sampler, failure)
        self._look_at_memory(limits)

    def _update_steps(self) -> None:
        now, counted = time.monotonic(), self._channels.metrics.samplers["env_steps"]
        for index, sampler in self._staying().items():
            if (env_steps := int(counted[index])) > sampler.env_steps:
                sampler.env_steps, sampler.last_step_at = env_steps, now
                sampler.first_step_at = sampler.first_step_at or now
                self._has_anyone_stepped = True
            if sampler.was_productive:
                self._restarts.record_productive(sampler.started_at)

    def _failure_of(self, sampler: _Sampler, limits: SamplingConfig, attention: Attention) -> _Failure | None:
        child = sampler.child
        has_ended = child.process.poll() is not None  # asked first: its last words are there then
        had_raised = child.raised is not None
        self._received += child.receive()
        if child.raised is not None and not had_raised:
            return _Failure(child.raised.reason, child.raised.traceback, has_raised=True)
        if sampler.leave_by is not None:
            return None
        if has_ended:
            return _Failure(child.describe_exit())
        hang_s = child.silence_limit_s(limits.hang_s)
        if self._channels.metrics.clock["waits_for_person"][0]:
            return None
        if attention.seen_s(self._channels.control.silence_s(child.slot)) > hang_s:
            return _Failure(
                f"it has shown no sign of life for {hang_s:g} s (--hang-s): an environment's reset or step may hang"
            )
        return None

    def _look_at_memory(self, limits: SamplingConfig) -> None:
        now = time.monotonic()
        if limits.max_sampler_mb == "auto" or now < self._memory_due_at:
            return
        self._memory_due_at = now + MEMORY_INTERVAL_S
        for sampler in self._staying().values():
            mb = resident_bytes(sampler.child.process.pid) / 2**20
            if mb > limits.max_sampler_mb:
                what = f"it takes {mb:.0f} MB, more than the {limits.max_sampler_mb} of --max-sampler-mb"
                self._take_out(sampler, _Failure(f"{what}: the environment may leak memory"))

    def _take_out(self, sampler: _Sampler, failure: _Failure) -> None:
        """Continue without a sampler, and record that; raise where there is no point in another."""
        self._update_steps()  # those that it made since it was last looked at
        now, child, was_leaving = time.monotonic(), sampler.child, sampler.leave_by is not None
        is_needed = not was_leaving and not self._is_only_tried(sampler)
        sampler.leave_by = now + EXIT_GRACE_S if failure.has_raised else now
        if self._close_first and child.process.poll() is None:
            sampler.leave_by = now + CLOSE_GRACE_S
            self._channels.control.dismiss(child.slot)
        elif not failure.has_raised:
            child.kill()  # with what it may have started
        if not is_needed:
            if not was_leaving:
                self.failure = f"{child.name} failed: {failure.reason}"
            self._warn(child.name, f"failed, the run continues: {failure.reason}", failure.traceback)
            return
        if not sampler.was_productive:
            self._restarts.record_failure(now, sampler.started_at)
        if self._is_final(child, failure):
            tries = f" (start {self._restarts.unproductive} in a row that led to nothing)"
            reason = failure.reason + (tries if self._restarts.has_given_up else "")
            raise ProcessFailed(child.name, reason, failure.traceback)
        self._warn(child.name, f"failed, another takes its place: {failure.reason}", failure.traceback)

    def _is_final(self, child: Child, failure: _Failure) -> bool:
        if failure.has_raised and not self._has_anyone_stepped:
            return True  # the environment cannot be had at all, and nothing is lost yet
        if not failure.has_raised and self._channels.transitions[child.index].written() is None:
            return True  # what was killed has perhaps left a channel that nobody can use any more
        # Those of the same age may still prove it possible.
        return self._restarts.has_given_up and not self._staying()

    def _is_only_tried(self, sampler: _Sampler) -> bool:
        others = (other for other in self._staying().values() if other is not sampler)
        return sampler.is_tried and not sampler.has_stepped and any(other.has_stepped for other in others)

    def _warn(self, name: str, what: str, traceback: str = "") -> None:
        message = {"kind": "event", "event": "warning", "reason": f"{name} {what}", "traceback": traceback}
        self._received.append((name, message))


def _samplers_of(settings: RunSettings) -> tuple[int, int]:
    return settings.samplers, settings.envs_per_sampler
