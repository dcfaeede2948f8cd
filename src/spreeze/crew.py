"""The processes of a run: one learner, one evaluator, as many samplers as are wanted at the moment, and guests.

In: a config, and settings that may change at any time. Out: processes that are started, briefed, dismissed and ended
in order. Samplers come and go without stopping anyone: one that is dismissed writes its last rows and ends, and its
channel goes to another sampler only after the learner has read it empty.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from spreeze import child as children
from spreeze.adapt.tune import Settings
from spreeze.channels import Channels
from spreeze.channels.transitions import RowLayout
from spreeze.checkpoint import Manifest
from spreeze.child import Child, ChildSpec
from spreeze.config import Config, LearningConfig
from spreeze.envs import EnvSpec, Spaces
from spreeze.errors import LearnerFailed, ProcessFailed, one_line
from spreeze.guests import GuestRole, Guests, how_it_ended

STOP_GRACE_S = 3.0  # a process that has not ended by then hangs in an environment's step
LEAVE_GRACE_S = 30.0  # for a sampler that is dismissed alone: nobody waits for it, and its step may be slow
GUEST_GRACE_S = 1.0  # for a guest, after all others have ended: pages are told how
HANG_S = 120.0  # no heartbeat for so long: longer than the slowest reset, shorter than a user's patience

SAVING_SILENCE_S = 3.0  # a learner that saves itself beats ten times a second
GENERATIONS_A_SITTING = 1_000_000  # more than samplers are started in one

LEARNER_SLOT, ACTOR_SLOT, EVALUATOR_SLOT, VIEWER_SLOT, DASHBOARD_SLOT, FIRST_SAMPLER_SLOT = range(6)
GUEST_SLOTS: Mapping[GuestRole, int] = {"view": VIEWER_SLOT, "dashboard": DASHBOARD_SLOT}


@dataclass
class _Sampler:
    """A sampler, from its start until its channel is free again."""

    child: Child
    envs: int
    env_steps_before: int
    """What its counter stood at when it started: the sampler that had the channel before has counted there too."""
    is_extra: bool = False
    """Whether it was started while the run went on: until its first step, the run does not depend on it."""
    dismissed_at: float | None = None


class Crew:
    """Starts, watches and ends the processes of a run."""

    def __init__(self, env: EnvSpec, channels: Channels, run_dir: Path, started_at: float) -> None:
        self.channels = channels
        self._env, self._run_dir, self.started_at = env, run_dir, started_at
        self._learners: list[Child] = []
        self._learner_threads = 1
        self._evaluator: Child | None = None
        self._samplers: dict[int, _Sampler] = {}
        self._guests = Guests(channels.control)
        self._generations = [0] * len(channels.transitions)
        self._config: Config | None = None
        self._spaces: Spaces | None = None
        self._wanted: Settings | None = None
        self.failure: str | None = None
        """Why the samplers that are wanted cannot all be had; none is started until other settings are asked for."""
        self._allowed_cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []

    # --- who is there ------------------------------------------------------------------------------------------

    @property
    def members(self) -> list[Child]:
        """All processes that the run needs, and samplers that are leaving."""
        others = [] if self._evaluator is None else [self._evaluator]
        return [*self._learners, *others, *(sampler.child for sampler in self._samplers.values())]

    @property
    def samplers_at_work(self) -> int:
        """Samplers that were not dismissed."""
        return len(self._staying())

    @property
    def wanted(self) -> Settings | None:
        """The settings that are in force, or soon will be."""
        return self._wanted

    def pids_by_role(self) -> dict[str, list[int]]:
        """Return the processes of each role."""
        by_role: dict[str, list[int]] = {}
        for child in (*self.members, *self._guests.children):
            by_role.setdefault(children.ROLE_NAMES[child.role], []).append(child.process.pid)
        return by_role

    def _has_stepped(self, index: int) -> bool:
        env_steps = self.channels.metrics.samplers["env_steps"]
        return int(env_steps[index]) > self._samplers[index].env_steps_before

    def _staying(self) -> dict[int, _Sampler]:
        return {index: sampler for index, sampler in self._samplers.items() if sampler.dismissed_at is None}

    # --- start -------------------------------------------------------------------------------------------------

    def start(self, samplers: int, envs_per_sampler: int, learner_threads: int, is_split: bool) -> None:
        """Start all processes; they import what they need while the environment is looked at."""
        self._learner_threads = learner_threads
        # Learners first, because importing torch takes longest.
        if is_split:
            for index, slot in enumerate((LEARNER_SLOT, ACTOR_SLOT)):
                self._learners.append(self._start_child("learn_split", index, slot, learner_threads))
        else:
            self._learners.append(self._start_child("learn", 0, LEARNER_SLOT, learner_threads))
        for index in range(samplers):
            self._start_sampler(index, envs_per_sampler)
        self._evaluator = self._start_child("evaluate", 0, EVALUATOR_SLOT, 1)

    def brief(
        self,
        config: Config,
        spaces: Spaces,
        settings: Settings,
        checkpoints: Sequence[Manifest] = (),
        sitting: int = 1,
    ) -> None:
        """Tell all processes what to do, now that everything is known.

        checkpoints: what a resumed run goes on from, newest first. sitting: how often the run was started.
        """
        layout = RowLayout(spaces.observation_size, spaces.action_size)
        for channel in self.channels.transitions:
            # Memory that nobody has written to costs nothing: there is a ring for every sampler there may ever be.
            channel.allocate(layout, int(config.sampling.ring_rows))
        if config.learning.is_split:
            room = _most_parameters(layout, config.learning)
            for mailbox in (self.channels.to_actor, self.channels.to_critic):
                mailbox.allocate(room)
        self._config, self._spaces = config, spaces
        # Samplers of a later sitting are to play other episodes than those of an earlier one.
        self._generations = [(sitting - 1) * GENERATIONS_A_SITTING] * len(self._generations)
        self.use(settings)
        for child in self.members:
            self.channels.control.beat(child.slot)  # it could not before: making an environment may have taken long
            self._send_spec(child, settings.envs_per_sampler, self._generations[0], checkpoints)

    def _start_child(self, role: children.Role, index: int, slot: int, threads: int) -> Child:
        self.channels.control.enlist(slot)
        log_path = self._run_dir / "logs" / f"{children.name_of(role, index).replace(' ', '-')}.log"
        return children.start(role, index, slot, self.channels, log_path, threads)

    def _start_sampler(self, index: int, envs: int, is_extra: bool = False) -> Child:
        child = self._start_child("sample", index, FIRST_SAMPLER_SLOT + index, 1)
        steps_before = int(self.channels.metrics.samplers["env_steps"][index])
        self._samplers[index] = _Sampler(child, envs, steps_before, is_extra)
        return child

    def _start_extra_sampler(self, index: int, envs: int) -> None:
        try:
            child = self._start_sampler(index, envs, is_extra=True)
        except OSError as error:
            self.failure = f"no further process can be started: {one_line(error)}"
            return
        self._generations[index] += 1
        self._place(child)
        self._send_spec(child, envs, self._generations[index])

    def add_guest(self, role: GuestRole) -> None:
        """Start a process that the run can do without, while it goes on; one that is there already stays."""
        self._guests.add(role, self._start_guest)

    def remove_guest(self, role: GuestRole) -> None:
        """Ask a guest to leave."""
        self._guests.remove(role)

    def _start_guest(self, role: GuestRole) -> Child:
        child = self._start_child(role, 0, GUEST_SLOTS[role], 1)
        self._place(child)
        assert self._config is not None
        self._send_spec(child, int(self._config.sampling.envs_per_sampler), 0)
        return child

    def _send_spec(self, child: Child, envs: int, generation: int, checkpoints: Sequence[Manifest] = ()) -> None:
        assert self._config is not None
        assert self._spaces is not None
        child.send_spec(
            ChildSpec(
                index=child.index,
                slot=child.slot,
                config=self._config.replace(envs_per_sampler=envs),
                env=self._env,
                spaces=self._spaces,
                run_dir=self._run_dir.absolute(),
                started_at=self.started_at,
                channels=self.channels,
                generation=generation,
                checkpoints=tuple(checkpoints) if child in self._learners else (),
            )
        )

    # --- change ------------------------------------------------------------------------------------------------

    def use(self, settings: Settings) -> None:
        """Work with these settings from now on. `turn` does what takes time."""
        before = self._wanted
        moved = before is None or (before.pinned, before.learner_threads) != (
            settings.pinned,
            settings.learner_threads,
        )
        self._wanted, self.failure = settings, None
        self.turn()
        if moved:
            for child in (*self.members, *self._guests.children):
                self._place(child)

    def turn(self) -> None:
        """Bring the samplers nearer to what is wanted."""
        if self._wanted is None:
            return
        self._reap()
        self._guests.turn(self._start_guest)
        wanted = self._wanted
        staying = self._staying()
        fitting = [index for index, sampler in staying.items() if sampler.envs == wanted.envs_per_sampler]
        others = [index for index in staying if index not in fitting]
        for index in fitting[wanted.samplers :]:  # the newest leave first
            self._dismiss(index)
        free = [index for index in range(len(self.channels.transitions)) if index not in self._samplers]
        missing = max(0, wanted.samplers - len(fitting))
        for index in free[:missing]:
            if self.failure is None:
                self._start_extra_sampler(index, wanted.envs_per_sampler)
        # Those with another number of environments go on until their successors step; with no ring free, one leaves.
        stepping = sum(self._has_stepped(index) for index in fitting)
        keep = max(0, wanted.samplers - stepping)
        if missing and not free and self.failure is None and len(staying) == len(self._samplers):
            keep = min(keep, len(others) - 1)
        for index in others[max(0, keep) :]:
            self._dismiss(index)
        rings = max(self.channels.control.rings, 1 + max(self._samplers, default=-1))
        envs_at_work = sum(sampler.envs for sampler in self._samplers.values())
        self.channels.control.order(wanted.batch_size, wanted.learner_threads, rings, envs_at_work)

    @property
    def batch_limit(self) -> int | None:
        """The largest batch that fits the learner's devices; None while none was too large."""
        limits = [int(side["batch_limit"]) for side in self.learner_counters() if side["batch_limit"]]
        return min(limits, default=None)

    def learner_counters(self) -> list[NDArray[Any]]:
        """Return the counters of each process of the learner."""
        metrics = self.channels.metrics
        return [metrics.learner[0], metrics.actor[0]][: len(self._learners)]

    def has_reached(self, settings: Settings) -> bool:
        """Say whether these settings are in force: all samplers have stepped, none leaves, the learner follows."""
        staying, sides = self._staying(), self.learner_counters()
        return (
            self._wanted == settings
            and len(self._samplers) == len(staying) == settings.samplers
            and all(self._has_stepped(index) for index in staying)
            and all(side["is_steady"] and int(side["batch_size"]) == settings.batch_size for side in sides)
            and all(settings.learner_threads in (0, int(side["learner_threads"])) for side in sides)
        )

    def _dismiss(self, index: int) -> None:
        self._samplers[index].dismissed_at = time.monotonic()
        self.channels.control.dismiss(self._samplers[index].child.slot)

    def _reap(self) -> None:
        for index, sampler in list(self._samplers.items()):
            if sampler.dismissed_at is None:
                continue
            if sampler.child.process.poll() is None:
                if time.monotonic() > sampler.dismissed_at + LEAVE_GRACE_S:
                    sampler.child.kill()  # hangs in a step; the rows it has written are whole
            elif self.channels.transitions[index].is_empty():
                self.channels.metrics.samplers["policy_published_at"][index] = 0.0  # it may have been killed
                sampler.child.close()
                del self._samplers[index]

    def _place(self, child: Child) -> None:
        """Put a process on the cores it may use: those of its role, or all."""
        if sys.platform != "linux" or self._wanted is None:
            return
        cores, apart = self._allowed_cores, self._wanted.learner_threads * len(self._learners)
        # A learner that is still finding out how many threads it needs may have all cores.
        if self._wanted.pinned and 0 < apart < len(cores):
            cores = cores[:apart] if child in self._learners else cores[apart:]
        with contextlib.suppress(OSError):  # it ended meanwhile
            for task in os.listdir(f"/proc/{child.process.pid}/task"):  # noqa: PTH208 (names are what is wanted)
                os.sched_setaffinity(int(task), cores)

    # --- watch -------------------------------------------------------------------------------------------------

    def read_messages(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield names and what processes have said since the last time; an error of one that is needed is raised."""
        for child in self.members:
            for message in child.messages.read():
                if message["kind"] == "ready":
                    child.is_ready = True
                elif message["kind"] != "error":
                    yield child.name, message
                elif self._can_do_without(child):
                    yield child.name, self._go_without(child, message["reason"])
                else:
                    raise self._failed(child, message["reason"], message["traceback"], message["error"])
        yield from self._guests.read_messages()

    def _can_do_without(self, child: Child) -> bool:
        """Say whether this is a sampler that leaves, or one that has only been tried and has not made a step."""
        sampler = self._samplers.get(child.index) if child.role == "sample" else None
        if sampler is None or sampler.child is not child:
            return False
        return sampler.dismissed_at is not None or (sampler.is_extra and not self._has_stepped(child.index))

    def _go_without(self, child: Child, reason: str) -> dict[str, Any]:
        """Let a sampler go that failed; return the warning about it."""
        if self._samplers[child.index].dismissed_at is None:
            self.failure = f"{child.name} failed: {reason}"
            self._dismiss(child.index)
        return {"kind": "event", "event": "warning", "reason": f"{child.name} failed, the run goes on: {reason}"}

    def require_alive(self) -> None:
        """Raise what has happened to a process that ended or hangs."""
        leaving = [s.child for s in self._samplers.values() if s.dismissed_at is not None]
        for child in self.members:
            if child in leaving:
                continue
            code, reason = child.process.poll(), ""
            if code is not None:
                for _ in self.read_messages():  # its last words, if it had any, say more than its exit code
                    pass
                reason = how_it_ended(child)
            elif self.channels.control.silence_s(child.slot) > HANG_S:
                reason = f"it has shown no sign of life for {HANG_S:.0f} s: an environment's reset or step may hang"
            if reason and self._can_do_without(child):
                self._go_without(child, reason)
            elif reason:
                raise self._failed(child, reason)

    def _failed(self, child: Child, reason: str, traceback: str = "", error: str = "") -> ProcessFailed:
        kind = LearnerFailed if child in self._learners else ProcessFailed
        return kind(child.name, reason, traceback, error)

    # --- end ---------------------------------------------------------------------------------------------------

    def ask_to_end(self, saving_s: float = 0.0) -> None:
        """Ask samplers to end, then all others, which so take in every row there is; wait a little for either.

        saving_s: how long learners may take to save themselves, as long as they show that they live.
        """
        samplers = [sampler.child for sampler in self._samplers.values() if sampler.child.is_ready]
        if all(learner.process.poll() is None for learner in self._learners):  # else nobody takes their rows
            for child in samplers:
                self.channels.control.dismiss(child.slot)
            _wait_for(samplers, time.monotonic() + STOP_GRACE_S / 3)
        self.channels.control.stop()
        _wait_for([child for child in self.members if child.is_ready], time.monotonic() + STOP_GRACE_S)
        deadline = time.monotonic() + saving_s - STOP_GRACE_S
        while (alive := [child for child in self._learners if child.is_ready and child.process.poll() is None]) and (
            time.monotonic() < deadline
            and all(self.channels.control.silence_s(child.slot) < SAVING_SILENCE_S for child in alive)
        ):
            time.sleep(0.01)  # for the disk

    def restart_learners(self, checkpoints: Sequence[Manifest]) -> None:
        """Start the learner anew from a checkpoint, both sides of it, while samplers go on."""
        roles = [(child.role, child.index, child.slot) for child in self._learners]
        for child in self._learners:
            child.kill()
            child.close()
        for channel in self.channels.transitions:
            channel.align_readers()
        for mailbox in (self.channels.to_actor, self.channels.to_critic):
            mailbox.repair()
        threads = self._learner_threads
        self._learners = [self._start_child(role, index, slot, threads) for role, index, slot in roles]
        for child in self._learners:
            self._place(child)
            self._send_spec(child, 1, 0, checkpoints)

    def kill(self) -> None:
        """End what is left, now. Guests stay: they may have to show how the run has ended."""
        self.channels.control.stop()
        for child in self.members:
            child.kill()

    def close(self) -> None:
        """Let guests go, and pipes and descriptors."""
        guests = self._guests.children
        for child in guests:
            self.channels.control.dismiss(child.slot)
        _wait_for([child for child in guests if child.is_ready], time.monotonic() + GUEST_GRACE_S)
        for child in guests:
            child.kill()
        for child in (*self.members, *guests):
            child.close()
        self.channels.close()  # counters stay readable: the memory is still mapped


def _wait_for(processes: list[Child], deadline: float) -> None:
    while any(child.process.poll() is None for child in processes) and time.monotonic() < deadline:
        time.sleep(0.01)  # for the processes that end now, and need the core to do so


def _most_parameters(layout: RowLayout, learning: LearningConfig) -> int:
    """Return a number that the parameters of actor or critics stay below; what is not written costs no memory."""
    outputs = max(2 * layout.action_size, learning.atoms)
    widths = (layout.observation_size + layout.action_size, *learning.hidden, outputs)
    return 4 * sum((a + 1) * (b + 1) for a, b in pairwise(widths)) + 8 * sum(learning.hidden) + 1024
