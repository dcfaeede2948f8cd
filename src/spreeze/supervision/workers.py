"""The processes of a run: one learner, one evaluator, as many samplers as are wanted at the moment, and guests.

In: a config, and settings that may change at any time. Out: processes that are started, briefed, dismissed and ended
in order. `samplers.py` and `guests.py` keep those that a run can lose; a learner that is lost can be started anew
from a checkpoint, which is for the supervisor to say.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
from numpy.typing import NDArray

from spreeze.channels import Channels
from spreeze.channels.brief import ROLE_NAMES, ChildSpec, Role, name_of
from spreeze.channels.rejected_rows import what_was_rejected
from spreeze.channels.spaces import Spaces
from spreeze.channels.transitions import RowLayout
from spreeze.config import Config, LearningConfig
from spreeze.config.env_spec import EnvSpec
from spreeze.config.run_settings import Settings
from spreeze.errors import LearnerFailed
from spreeze.runs.checkpoint_format import Manifest
from spreeze.supervision import launch
from spreeze.supervision.launch import Child
from spreeze.supervision.optional_processes import GuestRole, Guests, how_it_ended
from spreeze.supervision.restart_policy import Attention
from spreeze.supervision.samplers import Samplers

STOP_GRACE_S = 3.0  # a process that has not ended by then hangs in an environment's step
GUEST_GRACE_S = 1.0  # for a guest, after all others have ended: pages are told how
LEARNER_HANG_S = 120.0  # no environment's doing: longer than the slowest start, shorter than a user's patience

SAVING_SILENCE_S = 10.0  # a learner that saves itself beats ten times a second, on a machine that is not too busy
GENERATIONS_A_SITTING = 1_000_000  # more than samplers are started in one

LEARNER_SLOT, ACTOR_SLOT, EVALUATOR_SLOT, VIEWER_SLOT, DASHBOARD_SLOT, FIRST_SAMPLER_SLOT = range(6)
GUEST_SLOTS: Mapping[GuestRole, int] = {
    "evaluator": EVALUATOR_SLOT,
    "viewer": VIEWER_SLOT,
    "dashboard": DASHBOARD_SLOT,
}


class Crew:
    """Starts, watches and ends the processes of a run."""

    def __init__(self, env: EnvSpec, channels: Channels, run_dir: Path, started_at: float) -> None:
        self.channels = channels
        self._env, self._run_dir, self.started_at = env, run_dir, started_at
        self._learners: list[Child] = []
        self._learner_threads = 1
        self._samplers = Samplers(channels)
        self._evaluators = Guests(channels.control)
        """One, or none for a while."""
        self._guests = Guests(channels.control)
        self._attention = Attention(time.monotonic())
        self._config: Config | None = None
        self._spaces: Spaces | None = None
        self._wanted: Settings | None = None
        self._has_told_of_rejected = False
        self._allowed_cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []

    # --- who is there ------------------------------------------------------------------------------------------

    @property
    def members(self) -> list[Child]:
        """All processes that belong to the training, and samplers that are leaving."""
        return [*self._learners, *self._evaluators.children, *self._samplers.children]

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
        """Whether there is one, with both sides where it has two."""
        return bool(self._learners) and all(learner.process.poll() is None for learner in self._learners)

    @property
    def wanted(self) -> Settings | None:
        """The settings that are in force, or soon will be."""
        return self._wanted

    def pids_by_role(self) -> dict[str, list[int]]:
        """Return the processes of each role."""
        by_role: dict[str, list[int]] = {}
        for child in (*self.members, *self._guests.children):
            by_role.setdefault(ROLE_NAMES[child.role], []).append(child.process.pid)
        return by_role

    # --- start -------------------------------------------------------------------------------------------------

    def start(self, samplers: int, envs_per_sampler: int, learner_threads: int, is_split: bool) -> None:
        """Start all processes; they import what they need while the environment is looked at."""
        self._learner_threads = learner_threads
        # Learners first, because importing torch takes longest.
        if is_split:
            for index, slot in enumerate((LEARNER_SLOT, ACTOR_SLOT)):
                self._learners.append(self._start_child("split_learner", index, slot, learner_threads))
        else:
            self._learners.append(self._start_child("learner", 0, LEARNER_SLOT, learner_threads))
        for index in range(samplers):
            self._samplers.start(index, envs_per_sampler, self._start_sampler)
        self._evaluators.add("evaluator", self._start_guest)

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
        room = _most_parameters(layout, config.learning)
        self.channels.weights.allocate(4 * room)
        if config.learning.is_split:
            for mailbox in (self.channels.to_actor, self.channels.to_critic):
                mailbox.allocate(room)
        self._config, self._spaces, self._wanted = config, spaces, settings
        # Samplers of a later sitting are to play other episodes than those of an earlier one.
        generation = (sitting - 1) * GENERATIONS_A_SITTING
        self._samplers.count_generations_from(generation)
        self._samplers.want(settings)
        self._order()
        for child in self.members:
            self._place(child)
            self.channels.control.beat(child.slot)  # it could not before: making an environment may have taken long
            self._send_spec(child, settings.envs_per_sampler, generation, checkpoints)

    def _start_child(self, role: Role, index: int, slot: int, threads: int) -> Child:
        self.channels.control.enlist(slot)
        log_path = self._run_dir / "logs" / f"{name_of(role, index).replace(' ', '-')}.log"
        return launch.start(role, index, slot, self.channels, log_path, threads)

    def _start_sampler(self, index: int, envs: int, generation: int) -> Child:
        child = self._start_child("sampler", index, FIRST_SAMPLER_SLOT + index, 1)
        self._brief_late(child, envs, generation)
        return child

    def _start_guest(self, role: GuestRole) -> Child:
        child = self._start_child(role, 0, GUEST_SLOTS[role], 1)
        self._brief_late(child, 0, 0)
        return child

    def _brief_late(self, child: Child, envs: int, generation: int) -> None:
        """Tell a process what to do that was started while the run goes on; `brief` tells the others."""
        if self._config is not None:
            self._place(child)
            self._send_spec(child, envs or int(self._config.sampling.envs_per_sampler), generation)

    def add_guest(self, role: GuestRole) -> None:
        """Start a process that the run can do without, while it goes on; one that is there already stays."""
        self._guests.add(role, self._start_guest)

    def remove_guest(self, role: GuestRole) -> None:
        """Ask a guest to leave."""
        self._guests.remove(role)

    def _send_spec(self, child: Child, envs: int, generation: int, checkpoints: Sequence[Manifest] = ()) -> None:
        assert self._config is not None
        assert self._spaces is not None
        child.send_spec(
            ChildSpec(
                index=child.index,
                slot=child.slot,
                config=self._config.replace(envs_per_sampler=envs),
                env=self._env.with_backend(self._config.environment.backend),
                spaces=self._spaces,
                run_dir=self._run_dir.absolute(),
                started_at=self.started_at,
                channels=self.channels,
                generation=generation,
                checkpoints=tuple(manifest.number for manifest in checkpoints) if child in self._learners else (),
            )
        )

    # --- change ------------------------------------------------------------------------------------------------

    def use(self, settings: Settings) -> None:
        """Work with these settings from now on. `turn` does what takes time."""
        before, self._wanted = self._wanted, settings
        moved = before is None or (before.pinned, before.learner_threads) != (
            settings.pinned,
            settings.learner_threads,
        )
        self._samplers.want(settings)
        self.turn()
        if moved:
            for child in (*self.members, *self._guests.children):
                self._place(child)

    def turn(self) -> None:
        """Bring samplers and guests nearer to what is wanted."""
        if self._config is None:
            return
        hang_s = self._config.sampling.hang_s
        self._evaluators.turn(self._start_guest, hang_s, self._attention)
        self._guests.turn(self._start_guest, hang_s, self._attention)
        self._samplers.turn(self._start_sampler)
        self._order()

    def _order(self) -> None:
        """Tell the learner what is wanted of it, and whom to read from."""
        wanted, samplers = self._wanted, self._samplers
        assert wanted is not None
        rings = max(self.channels.control.rings, 1 + samplers.highest_index)
        self.channels.control.order(wanted.batch_size, wanted.learner_threads, rings, samplers.envs_at_work)

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
        sides = self.learner_counters()
        return (
            self._samplers.has_reached(settings)
            and all(side["is_steady"] and int(side["batch_size"]) == settings.batch_size for side in sides)
            and all(settings.learner_threads in (0, int(side["learner_threads"])) for side in sides)
        )

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
        """Yield names and what processes have said since the last time; an error of a learner is raised."""
        for learner in self._learners:
            yield from self._read_learner(learner)
        yield from self._evaluators.read_messages()
        yield from self._samplers.read_messages()
        yield from self._guests.read_messages()
        yield from self._tell_of_rejected()

    def _read_learner(self, learner: Child) -> Iterator[tuple[str, dict[str, Any]]]:
        for message in learner.messages.read():
            if message["kind"] == "ready":
                learner.is_ready = True
            elif message["kind"] == "error":
                raise LearnerFailed(learner.name, message["reason"], message["traceback"], message["error"])
            else:
                yield learner.name, message

    def _tell_of_rejected(self) -> Iterator[tuple[str, dict[str, Any]]]:
        learner = self.channels.metrics.learner[0]
        if self._has_told_of_rejected or not learner["rows_rejected"] or self._spaces is None or not self._learners:
            return
        self._has_told_of_rejected = True
        layout = RowLayout(self._spaces.observation_size, self._spaces.action_size)
        reason = f"{what_was_rejected(self._env.name, layout, learner)}: they are left out, and counted"
        yield self._learners[0].name, {"kind": "event", "event": "warning", "reason": reason}

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
            for _ in self._read_learner(learner):  # its last words, if it had any, say more than its exit code
                pass
            raise LearnerFailed(learner.name, how_it_ended(learner))
        if self._attention.seen_s(self.channels.control.silence_s(learner.slot)) > LEARNER_HANG_S:
            raise LearnerFailed(learner.name, f"it has shown no sign of life for {LEARNER_HANG_S:.0f} s")

    # --- end ---------------------------------------------------------------------------------------------------

    def ask_to_end(self, saving_s: float = 0.0) -> None:
        """Ask samplers to end, then all others, which so take in every row there is; wait a little for either.

        saving_s: how long learners may take to save themselves, as long as they show that they live.
        """
        samplers = [child for child in self._samplers.children if child.is_ready]
        if self.has_learner:  # else nobody takes their rows
            for child in samplers:
                self.channels.control.dismiss(child.slot)
            _wait_for(samplers, time.monotonic() + STOP_GRACE_S / 3)
        self.channels.control.stop()
        _wait_for([child for child in self.members if child.is_ready], time.monotonic() + STOP_GRACE_S)
        deadline = time.monotonic() + saving_s - STOP_GRACE_S
        while any(map(self._may_be_saving, self._learners)) and time.monotonic() < deadline:
            time.sleep(0.01)  # for the disk

    def _may_be_saving(self, learner: Child) -> bool:
        if self._config is None or learner.process.poll() is not None:
            return False
        if self.channels.control.silence_s(learner.slot) > SAVING_SILENCE_S:
            return False
        with contextlib.suppress(psutil.Error):
            return bool(psutil.Process(learner.process.pid).status() != psutil.STATUS_STOPPED)
        return False

    def restart_learners(self, checkpoints: Sequence[Manifest]) -> None:
        """Start the learner anew from a checkpoint, both sides of it, while samplers go on."""
        roles = [(child.role, child.index, child.slot) for child in self._learners]
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
        threads = self._learner_threads
        for role, index, slot in roles:
            self._learners.append(self._start_child(role, index, slot, threads))
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
