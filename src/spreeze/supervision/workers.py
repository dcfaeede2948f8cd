"""The processes of a run: one learner, one evaluator, as many samplers as are wanted now, and optional processes.

In: a config, and settings that may change at any time. Out: processes that are started, briefed, dismissed and ended
in order. `samplers.py` and `optional_processes.py` keep those that a run can lose; a learner that is lost can be
restarted from a checkpoint, which the supervisor decides.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
from numpy.typing import NDArray

from spreeze.channels import Channels
from spreeze.channels.brief import ROLE_NAMES
from spreeze.channels.environment_facts import EnvironmentFacts
from spreeze.channels.spaces import Spaces
from spreeze.channels.transitions import TransitionChannel
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.config.run_settings import RunSettings
from spreeze.errors import LearnerFailed
from spreeze.host.lifetime import CLOSE_GRACE_S
from spreeze.host.process_group import kill_together
from spreeze.runs.checkpoint_format import Manifest
from spreeze.supervision.allocation import allocate_channels
from spreeze.supervision.checkpoint_orders import ResumePoint
from spreeze.supervision.facts import facts_from
from spreeze.supervision.launch import Child, Launcher, NamedMessage, OptionalRole
from spreeze.supervision.optional_processes import OptionalProcesses
from spreeze.supervision.restart_policy import Attention
from spreeze.supervision.samplers import Samplers

# From the order to end on. A limit is to hold within two seconds, however slow an environment's step is: rows of
# samplers are waited for first, then for the end of all processes, then for the optional ones, which show how.
DELIVERY_GRACE_S, STOP_GRACE_S, OPTIONAL_GRACE_S = 0.4, 1.0, 0.8
REMOTE_DELIVERY_GRACE_S = 3.0  # for the samplers of other machines, whose rows are on their way
LEARNER_HANG_S = 120.0  # no environment's doing: longer than the slowest start, shorter than a user's patience

# An evaluator beats after each step: one that is in a step for so long has no episode more before the end.
EVALUATING_SILENCE_S = 3.0
SAVING_SILENCE_S = 10.0  # a learner that saves itself beats ten times per second, on a machine that is not too busy
GENERATIONS_PER_SESSION = 1_000_000  # more than the samplers that one session starts


class Workers:
    """Starts, watches and ends the processes of a run."""

    def __init__(
        self, env: EnvSpec, channels: Channels, run_dir: Path, started_at: float, gateway: str | None = None
    ) -> None:
        """gateway: the program of the gateway to other machines, of a run that has some."""
        self.channels, self.started_at = channels, started_at
        self._env = env
        self._launcher = Launcher(env, channels, run_dir, started_at, gateway)
        self._environment: Child | None = None
        self._learners: list[Child] = []
        self._learner_threads = 1
        self._samplers = Samplers(channels, self._launcher.start_sampler, env.is_realtime)
        self._evaluators = OptionalProcesses(channels.control, self._launcher.start_optional)
        """One, or none for a while."""
        self._gateways = OptionalProcesses(channels.control, self._launcher.start_optional)
        """Likewise; none in a run on one machine."""
        self._optional = OptionalProcesses(channels.control, self._launcher.start_optional)
        self._attention = Attention(time.monotonic())
        self._config: Config | None = None
        self._wanted: RunSettings | None = None
        self._without_replay_until = 0
        """Learners restore no rows from checkpoints up to this number."""

    # --- who is there ------------------------------------------------------------------------------------------

    @property
    def members(self) -> list[Child]:
        """All processes that belong to the training, and samplers that are leaving."""
        environments = [] if self._environment is None else [self._environment]
        optional = [*self._evaluators.children, *self._gateways.children]
        return [*environments, *self._learners, *optional, *self._samplers.children]

    @property
    def samplers_at_work(self) -> int:
        """Samplers that were not dismissed and have not failed."""
        return self._samplers.at_work

    @property
    def failure(self) -> str | None:
        """Why the samplers that are wanted cannot all be had; none is started until other settings are asked for."""
        return self._samplers.failure

    @property
    def has_learner(self) -> bool:
        """Whether there is one that learns, with both sides where it has two."""
        return self._learns and all(learner.process.poll() is None for learner in self._learners)

    @property
    def _learns(self) -> bool:
        # Of two sides, the second begins soon after the first; the first may have made all updates by then.
        return any(learner.has_begun for learner in self._learners)

    @property
    def may_lose_learner(self) -> bool:
        """Whether another learner can continue with what one that was killed leaves in the channels."""
        return all(channel.survives_its_reader for channel in self.channels.transitions)

    @property
    def wanted(self) -> RunSettings | None:
        """The settings that are in force, or soon will be."""
        return self._wanted

    def pids_by_role(self) -> dict[str, list[int]]:
        """Return the processes of each role, but for those that are gone: their numbers may be another program's."""
        by_role: dict[str, list[int]] = {}
        there = (child for child in (*self.members, *self._optional.children) if child.process.returncode is None)
        for child in there:
            by_role.setdefault(ROLE_NAMES[child.role], []).append(child.process.pid)
        return by_role

    def channels_in_use(self) -> list[TransitionChannel]:
        """Return the channels that have a writer."""
        rings = [child.index for child in self._samplers.children]
        rings += [ring for ring, machine in self.channels.machines.read() if machine.samplers]
        return [self.channels.transitions[ring] for ring in rings]

    # --- start -------------------------------------------------------------------------------------------------

    def start_environment(self) -> None:
        """Start the process that describes the environment, before the others: all wait for what it finds."""
        self._environment = self._launcher.start_environment()

    def start(self, samplers: int, envs_per_sampler: int, learner_threads: int, is_split: bool) -> None:
        """Start all processes; they import what they need while the environment is made and described."""
        self._learner_threads = learner_threads
        # Learners before the others, because importing torch takes longest.
        self._learners = self._launcher.start_learners(learner_threads, is_split)
        for index in range(samplers):
            self._samplers.start(index, envs_per_sampler)
        if not self._env.is_realtime:  # what exists once is a sampler's
            self._evaluators.add("evaluator")
        if self.channels.machines.count:
            self._gateways.add("gateway")

    def facts(self, hang_s: float) -> EnvironmentFacts | None:
        """Return what is known of the environment, None as long as its process has not answered."""
        assert self._environment is not None, "not started"
        return facts_from(self._environment, self._env.name, hang_s)

    def brief(
        self,
        config: Config,
        spaces: Spaces,
        settings: RunSettings,
        resume_point: ResumePoint | None = None,
        session: int = 1,
        _beat: Callable[[], None] = lambda: None,
    ) -> None:
        """Send all processes their briefs, now that everything is known.

        resume_point: what a run is resumed from. session: how often the run was started.
        """
        allocate_channels(self.channels, config, spaces)
        self._config, self._wanted = config, settings
        # Samplers of a later session are to play other episodes than those of an earlier one.
        generation = (session - 1) * GENERATIONS_PER_SESSION
        self._samplers.count_generations_from(generation)
        self._samplers.brief_with(settings.envs_per_sampler)  # what was planned before the environment was known
        self._samplers.want(settings)
        self._order()
        self._launcher.use(settings)
        self._launcher.begin(config, spaces)
        if resume_point is not None and resume_point.without_replay:
            self._without_replay_until = resume_point.checkpoints[0].number
        self._brief_learners(() if resume_point is None else resume_point.checkpoints)
        for child in (*self._evaluators.children, *self._gateways.children, *self._samplers.children):
            self._launcher.send_brief(child, settings.envs_per_sampler, generation)

    def _brief_learners(self, checkpoints: Sequence[Manifest]) -> None:
        for learner in self._learners:
            numbers = [manifest.number for manifest in checkpoints]
            self._launcher.send_brief(learner, kept=numbers, without_replay_until=self._without_replay_until)

    def add_optional(self, role: OptionalRole) -> None:
        """Start a process that the run can do without; one that is there already stays."""
        self._optional.add(role)

    # --- change ------------------------------------------------------------------------------------------------

    def use(self, settings: RunSettings) -> None:
        """Work with these settings from now on. `turn` does what takes time."""
        before, self._wanted = self._wanted, settings
        moved = before is None or (before.pinned, before.learner_threads) != (
            settings.pinned,
            settings.learner_threads,
        )
        self._launcher.use(settings)
        self._samplers.want(settings)
        self.turn()
        if moved:
            for child in (*self.members, *self._optional.children):
                self._launcher.place(child)

    def turn(self) -> None:
        """Bring samplers and optional processes nearer to what is wanted."""
        if self._config is None:
            return
        if self._environment is not None:
            self._environment.process.poll()  # it has answered: once it has ended it is reaped here
        hang_s = self._config.sampling.hang_s
        self._evaluators.turn(hang_s, self._attention)
        self._gateways.turn(hang_s, self._attention)
        if not self._gateways.children:
            self.channels.settle_machines()
        self._optional.turn(hang_s, self._attention)
        self._samplers.turn()
        self._order()

    def _order(self) -> None:
        """Order the batch size, the threads and the rings to read, of the learner."""
        wanted, samplers, machines = self._wanted, self._samplers, self.channels.machines
        assert wanted is not None
        rings = max(self.channels.control.rings, 1 + samplers.highest_index, machines.rings)
        envs = samplers.envs_at_work + machines.envs_at_work
        self.channels.control.order(wanted.batch_size, wanted.learner_threads, rings, envs)

    @property
    def batch_limit(self) -> int | None:
        """The largest batch that fits the learner's devices; None while none was too large."""
        limits = [int(side["batch_limit"]) for side in self.learner_counters() if side["batch_limit"]]
        return min(limits, default=None)

    def learner_counters(self) -> list[NDArray[Any]]:
        """Return the counters of each process of the learner."""
        metrics = self.channels.metrics
        return [metrics.learner[0], metrics.actor[0]][: len(self._learners)]

    def has_reached(self, settings: RunSettings) -> bool:
        """Return whether these settings are in force: all samplers have stepped, none leaves, the learner follows."""
        sides = self.learner_counters()
        return (
            self._samplers.has_reached(settings)
            and all(side["is_steady"] and int(side["batch_size"]) == settings.batch_size for side in sides)
            and all(settings.learner_threads in (0, int(side["learner_threads"])) for side in sides)
        )

    # --- watch -------------------------------------------------------------------------------------------------

    def read_messages(self) -> Iterator[NamedMessage]:
        """Yield what processes have sent since the last time; an error of a learner is raised."""
        for learner in self._learners:
            yield from learner.receive()
            _require_no_error(learner)
        yield from self._evaluators.read_messages()
        yield from self._gateways.read_messages()
        yield from self._samplers.read_messages()
        yield from self._optional.read_messages()

    def require_alive(self) -> None:
        """Raise what has happened to a process that the run cannot do without."""
        if self._config is None:
            return
        limits = self._config.sampling
        self._attention.turn(time.monotonic(), limits.hang_s)
        self._samplers.watch(limits, self._attention)
        for learner in self._learners:
            self._require_learner(learner)

    def _require_learner(self, learner: Child) -> None:
        if learner.process.poll() is not None:
            learner.receive()  # an error that it has reported says more than its exit code
            _require_no_error(learner)
            raise LearnerFailed(learner.name, learner.describe_exit())
        if self._attention.seen_s(self.channels.control.silence_s(learner.slot)) > LEARNER_HANG_S:
            raise LearnerFailed(learner.name, f"it has shown no sign of life for {LEARNER_HANG_S:.0f} s")

    def work(self, seconds: float, _is_over: Callable[[], bool]) -> None:
        """Let the processes work for so long."""
        time.sleep(seconds)  # the supervisor waits for nothing in particular, at little cost

    def env_steps_taken_in(self) -> int:
        """Return the environment steps whose rows every learner has taken."""
        return min(int(side["rows_consumed"]) for side in self.learner_counters())

    # --- end ---------------------------------------------------------------------------------------------------

    @property
    def is_evaluating(self) -> bool:
        """Whether the last version is scored while all others end."""
        control = self.channels.control
        return time.monotonic() < control.evaluate_until and any(
            child.is_ready and child.process.poll() is None and control.silence_s(child.slot) < EVALUATING_SILENCE_S
            for child in self._evaluators.children
        )

    def ask_to_end(self, read_messages: Callable[[], None], saving_s: float = 0.0, evaluating_s: float = 0.0) -> None:
        """Ask samplers to end, then all others, which so take in every row there is; wait a little for either.

        read_messages: called again and again, so that nobody waits for room in a pipe. saving_s: how long learners
        may take to save themselves, as long as they show that they live. evaluating_s: how long the evaluator may
        score their last version.
        """
        began = time.monotonic()
        samplers = [child for child in self._samplers.children if child.is_ready]
        gateways = [child for child in self._gateways.children if child.is_ready]
        if self.has_learner:  # else nobody takes their rows
            for child in (*gateways, *samplers):
                self.channels.control.dismiss(child.slot)
            _wait_for(samplers, began + DELIVERY_GRACE_S, read_messages)
            _wait_for(gateways, began + REMOTE_DELIVERY_GRACE_S, read_messages)
            began = time.monotonic() - DELIVERY_GRACE_S
        if evaluating_s:
            self.channels.control.order_last_evaluation(time.monotonic() + evaluating_s)
        self.channels.control.stop()
        # A learner that has not begun may be busy for long, with gigabytes of networks or of a checkpoint.
        everyone = [child for child in self.members if child.is_ready and (self._learns or not child.is_learner)]
        _wait_for(everyone, began + STOP_GRACE_S, read_messages)
        while self.is_evaluating or (
            any(map(self._may_be_saving, self._learners)) and time.monotonic() < began + saving_s
        ):
            if all(learner.process.poll() is not None for learner in self._learners):
                self.channels.control.announce_last_version()  # one that was killed has not
            read_messages()
            time.sleep(0.01)  # for the disk, or for the evaluator

    def _may_be_saving(self, learner: Child) -> bool:
        if not self._learns or learner.process.poll() is not None:
            return False
        if self.channels.control.silence_s(learner.slot) > SAVING_SILENCE_S:
            return False
        with contextlib.suppress(psutil.Error):
            return bool(psutil.Process(learner.process.pid).status() != psutil.STATUS_STOPPED)
        return False

    def restart_learners(self, checkpoints: Sequence[Manifest]) -> None:
        """Restart the learner from a checkpoint, both sides of it, while samplers continue."""
        is_split = len(self._learners) > 1
        for child in self._learners:
            child.kill()
            child.close()
        self._learners = []
        for record in (self.channels.metrics.learner, self.channels.metrics.actor):
            record["is_steady"] = 0  # the adaptation is not to measure a learner that is away
        for channel in self.channels.transitions:
            channel.align_readers()
        for mailbox in (self.channels.to_actor, self.channels.to_critic):
            mailbox.repair()
        self._learners = self._launcher.start_learners(self._learner_threads, is_split)
        self._brief_learners(checkpoints)

    def kill(self) -> None:
        """End what is left, now. Optional processes stay: they may have to show how the run has ended."""
        self.channels.control.stop()
        if self._env.is_realtime:  # a robot is closed first, also where somebody is in a hurry
            briefed = self._samplers.children if self._config is not None else []
            environments = [] if self._environment is None else [self._environment]
            _wait_for([*environments, *briefed], time.monotonic() + CLOSE_GRACE_S)
        kill_together([child.process for child in self.members])

    def close(self) -> None:
        """Let optional processes go, and pipes and descriptors."""
        optional = self._optional.children
        for child in optional:
            self.channels.control.dismiss(child.slot)
        _wait_for([child for child in optional if child.is_ready], time.monotonic() + OPTIONAL_GRACE_S)
        kill_together([child.process for child in optional])
        for child in (*self.members, *optional):
            child.close()
        self.channels.close()  # counters stay readable: the memory is still mapped


def _require_no_error(learner: Child) -> None:
    if (raised := learner.raised) is not None:
        raise LearnerFailed(learner.name, raised.reason, raised.traceback, raised.error)


def _wait_for(processes: list[Child], deadline: float, read_messages: Callable[[], None] = lambda: None) -> None:
    while any(child.process.poll() is None for child in processes) and time.monotonic() < deadline:
        read_messages()
        time.sleep(0.01)  # for the processes that end now, and need the core to do so
