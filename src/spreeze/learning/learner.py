"""What a learner does: takes transitions out of the channels into the replay, updates networks, publishes weights.

A learner is whole, or one side of two, the critics' or the actor's, each on a device and in a process of its own.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import torch

from spreeze.algorithms import ALGORITHMS
from spreeze.algorithms.actor_critic import ActorCritic
from spreeze.algorithms.kernels.cpu import CPU
from spreeze.algorithms.kernels.operations import PLAIN, Operations
from spreeze.channels.brief import Brief
from spreeze.channels.control import MessageWriter
from spreeze.channels.pacing import RatioGate
from spreeze.channels.transitions import RowLayout
from spreeze.config import LearnerRole, LearningConfig
from spreeze.errors import one_line
from spreeze.host.hardware import usable_cores
from spreeze.host.threads import learner_thread_candidates
from spreeze.learning.checkpoint_writer import CheckpointWriter, NotSaved, Saved, report, restore
from spreeze.learning.exchange import Exchange
from spreeze.learning.intake import Intake
from spreeze.learning.normalisation import Normaliser
from spreeze.learning.publishing import Publisher, Reporter
from spreeze.learning.replay import Replay
from spreeze.learning.transfers import Flight
from spreeze.learning.trial import Trial
from spreeze.learning.updates import make_updates
from spreeze.runs.checkpoint_counters import ROWS, WORK, counters_of
from spreeze.runs.checkpoint_format import manifest_path, read_manifest

IDLE_WAIT_S = 0.0005  # a vector step of samplers takes about as long: nothing is gained by looking more often
# Updates with which the learner finds the fastest way to compute: real ones, beside samplers and evaluator.
TRIAL_ROUNDS, TRIAL_UPDATES = 3, 8
MIN_BATCH_SIZE = 64  # what does not fit even so is not a matter of the batch


class ComputeMode(NamedTuple):
    """One way to compute an update on a CPU."""

    threads: int
    operations: Operations

    def __str__(self) -> str:
        return f"{self.operations.name} on {self.threads} thread{'s' if self.threads > 1 else ''}"


def _compute_modes(learning: LearningConfig, device: torch.device) -> list[ComputeMode]:
    """Return what the first updates are tried with: a single way on a GPU, where the CPU only launches."""
    if learning.learner_threads != "auto":
        counts = [learning.learner_threads]
    elif device.type == "cpu":
        counts = learner_thread_candidates(max(1, usable_cores() // (2 if learning.is_split else 1)))
    else:
        counts = [1]
    # Networks with layer norm are computed layer by layer, in float32.
    rounds = device.type == "cpu" and learning.update_engine == "auto" and not learning.layer_norm
    kinds = [PLAIN, CPU] if rounds else [PLAIN]
    return [ComputeMode(count, operations) for count in counts for operations in kinds]


class Learner:
    """Replay, algorithm, and what happens in one turn of the loop.

    On a GPU nothing here waits for it, except that the host runs at most two launches ahead: rows are copied, weights
    and losses read back while updates run.
    """

    def __init__(self, brief: Brief, messages: MessageWriter, role: LearnerRole = "all") -> None:
        config = brief.config
        device = torch.device(config.learning.device_of(role))
        if device.type == "cuda":
            torch.cuda.set_device(device.index or 0)  # streams, events and kernels are those of the current device
        torch.manual_seed(config.seed)
        self._layout = layout = RowLayout(brief.spaces.observation_size, brief.spaces.action_size)
        self._control, self._slot, self._messages = brief.channels.control, brief.slot, messages
        self._role, self._record_event = role, messages.record_event
        self._counters = brief.channels.metrics.actor if role == "actor" else brief.channels.metrics.learner
        self._batch_size = int(config.learning.batch_size)
        self._batch_limit = sys.maxsize
        self._learning = config.learning
        algorithm = _make_algorithm(brief, device, role)
        self._algorithm = algorithm
        self._trial = Trial(_compute_modes(config.learning, device), TRIAL_ROUNDS, TRIAL_UPDATES)
        self._use(self._trial.current)
        self._normaliser = (
            Normaliser(layout.observation_size, device) if config.learning.normalise_observations else None
        )
        self._intake = Intake(brief, layout, self._counters, reader=1 if role == "actor" else 0)
        self._replay = self._make_replay(layout, int(config.learning.replay_rows), device)
        self._updates = make_updates(config.learning.update_engine, algorithm, self._replay, self._record_event)
        self._gate = RatioGate(config, brief.channels.metrics, brief.channels.control, role)
        # The policy is the actor's side's to publish.
        self._publisher = (
            None if role == "critic" else Publisher(brief, algorithm, self._normaliser, self._record_event)
        )
        self._exchange = None if role == "all" else Exchange(brief, algorithm, self._counters)
        self._reporter = Reporter(self._counters, self._updates)
        self._flight = Flight(device)
        self._launched = self._began_at = self._least_rows = 0
        self._checkpoint_writer = self._go_on(brief)

    def turn(self) -> None:
        """Take in what there is, start updates if there may be any, publish and report if it is time."""
        self._control.beat(self._slot)
        self._save()
        self._take_in()
        allowed = self._updates_allowed()
        if self._exchange is not None:
            began = time.monotonic()
            self._exchange.turn(self._launched)
            self._counters["exchange_s"] += time.monotonic() - began
            allowed = min(allowed, self._exchange.updates_allowed(self._launched))
        now = time.monotonic()
        if not allowed:
            # Too few rows yet, or too many updates for them. The rows come from processes that need the core.
            self._count(self._flight.finished())
            time.sleep(IDLE_WAIT_S)
            self._counters["ratio_wait_s"] += time.monotonic() - now
            return
        self._follow_orders()
        self._count(self._flight.add(self._launch(allowed)))
        launched = time.monotonic()
        # On the actor's side, updates that are not the actor's turn take no time worth comparing.
        if not self._trial.is_over and (self._role != "actor" or self._algorithm.phase == 0):
            self._try(launched - now)
        if self._publisher is not None:
            self._publisher.turn(launched, self._launched)
        published = time.monotonic()
        self._counters["publish_s"] += published - launched
        self._reporter.turn(published)
        self._counters["report_s"] += time.monotonic() - published

    def _updates_allowed(self) -> int:
        if not len(self._replay) or self._counters["rows_consumed"][0] < self._least_rows:
            return 0
        return self._gate.updates_allowed(self._launched)

    def _take_in(self, until: Sequence[int] | None = None) -> int:
        """Take rows into the replay, up to given positions of the rings or all there are; return how many."""
        began, count = time.monotonic(), 0
        for rows in self._intake.usable_rows(until):
            self._replay.add(rows)
            count += len(rows)
            if self._normaliser is not None:
                self._normaliser.add(rows[:, self._layout.observation])
        self._replay.flush()
        if self._normaliser is not None:
            self._normaliser.take_over()
        self._counters["replay_rows"] = len(self._replay)
        self._counters["ingest_s"] += time.monotonic() - began
        return count

    def _go_on(self, brief: Brief) -> CheckpointWriter | None:
        """Go on from a checkpoint if there is one; return what makes the next."""
        folder = brief.run_dir / "checkpoint"
        kept = tuple(read_manifest(manifest_path(folder, number)) for number in brief.checkpoints)
        if kept:
            restore(folder, kept[0], self._algorithm, self._replay, self._normaliser, self._beat_and_ask, self._role)
        counters = counters_of(kept[0] if kept else None, self._role)
        # What a learner that was here before has taken in since then is gone.
        stepped_back = int(counters["rows_consumed"]) - int(self._counters["rows_consumed"][0])
        if kept and not len(self._replay):
            # Without its rows a run collects as many as at its start. Samplers are let do more than that: some rows
            # may be of no use, and what they may be ahead depends on how many they are.
            warmup = brief.config.sampling.warmup_steps
            self._least_rows = int(counters["rows_consumed"]) + warmup
            stepped_back -= 2 * warmup
        self._counters["steps_offset"] += stepped_back
        for name, value in counters.items():
            self._counters[name] = value
        self._counters["replay_rows"], self._counters["is_steady"] = len(self._replay), 0
        self._launched = self._began_at = int(self._counters["updates"][0])
        if self._exchange is not None:
            self._exchange.resume_from(self._launched)
        if not brief.config.checkpoints.checkpoint_interval_s:
            return None
        # Both sides of a split learner hold the same rows: one of them saves them.
        saves_rows = brief.config.checkpoints.checkpoint_replay and self._role != "actor"
        # Rows are counted anew where they were left out, and those of an older checkpoint are not in the way.
        extents = tuple(extent for manifest in kept for extent in manifest.extents) if len(self._replay) else ()
        try:
            return CheckpointWriter(
                folder,
                self._algorithm,
                self._replay if saves_rows else None,
                self._normaliser,
                extents,
                after=kept[0].number if kept else 0,
                role=self._role,
            )
        except OSError as error:
            self._record_event("warning", f"{folder} cannot be used, there will be no checkpoints: {one_line(error)}")
            return None

    def _save(self) -> None:
        if self._checkpoint_writer is None:
            return
        number, oldest_row = self._control.checkpoint
        if number:
            self._checkpoint_writer.begin(number, oldest_row, self._standing())
            self._report(self._checkpoint_writer.turn())

    def _standing(self) -> dict[str, float]:
        """Return where the learner stands, with the updates that are under way."""
        standing = {name: self._counters[name][0].item() for name in (*ROWS, *WORK)}
        under_way = self._launched - standing["updates"]
        return {
            **standing,
            "updates": self._launched,
            "update_frames": standing["update_frames"] + under_way * self._batch_size,
        }

    def _report(self, saved: Saved | NotSaved | None) -> None:
        if saved is not None:
            self._messages.send("checkpoint", **report(saved))

    def _update_once(self) -> None:
        self._follow_orders()
        self._count(self._flight.add(self._launch(1)) + self._flight.finished())
        if not self._trial.is_over:
            self._trial.record(0.0)  # in lock step there is one way to compute: the first

    def _beat_and_ask(self) -> bool:
        self._control.beat(self._slot)
        return self._control.stopping()

    def finish(self) -> None:
        """Wait for what is under way, and publish what it has led to."""
        self._count(self._flight.finished())
        if self._launched > self._began_at:
            self._reporter.report()
            if self._publisher is not None:
                self._publisher.publish(self._launched)
        self._control.beat(self._slot)
        self._take_in()  # what is left in the rings: both sides end with the same rows
        if self._checkpoint_writer is not None:
            number, oldest_row = self._control.last_checkpoint
            self._report(self._checkpoint_writer.finish(self._beat_and_ask))
            self._checkpoint_writer.begin(number, oldest_row, self._standing())
            self._report(self._checkpoint_writer.finish(self._beat_and_ask))
        if self._exchange is not None:
            rows, checksum = len(self._replay), self._replay.checksum()
            self._record_event("replay", f"{rows} transitions, checksum {checksum}")

    def _follow_orders(self) -> None:
        """Take over batch size and threads as they are wanted now, as soon as that stops nobody."""
        wanted = min(self._control.batch_size or self._batch_size, self._batch_limit)
        if wanted != self._batch_size and self._trial.is_over and self._updates.ready(wanted):
            self._count(self._flight.finished())  # with the batch size that they had
            self._use_batches_of(wanted)
        threads = self._control.learner_threads
        if threads and self._trial.is_over and threads != self._counters["learner_threads"][0]:
            if self._algorithm.device.type == "cpu":
                torch.set_num_threads(threads)
            self._counters["learner_threads"] = threads  # on a GPU too: it is what the other side may need
        is_steady = wanted == self._batch_size and self._trial.is_over and self._updates.is_steady
        self._counters["is_steady"] = is_steady

    def _use_batches_of(self, rows: int) -> None:
        self._batch_size = rows
        self._algorithm.learning_rate = _learning_rate(self._learning, rows)

    def _launch(self, allowed: int) -> int:
        while True:
            try:
                count = self._updates.launch(self._batch_size, allowed)
            except torch.OutOfMemoryError:
                if self._batch_size <= MIN_BATCH_SIZE:
                    raise
                self._count(self._flight.finished())  # with the batch size that they had
                torch.cuda.empty_cache()
                self._use_batches_of(self._batch_size // 2)
                self._counters["batch_limit"] = self._batch_limit = self._batch_size
                self._record_event("warning", f"out of GPU memory: from here on batches of {self._batch_size}")
            else:
                self._launched += count
                return count

    def _try(self, seconds: float) -> None:
        before = self._trial.current
        self._trial.record(seconds)
        if self._trial.current != before:
            self._use(self._trial.current)
        if self._trial.is_over:
            best, ways = self._trial.best, self._trial.candidates
            reason = f"fastest of an update each way: {self._trial.summary()}"
            for setting, value, count in (
                ("learner_threads", best.threads, len({way.threads for way in ways})),
                ("update_engine", best.operations.name, len({way.operations for way in ways})),
            ):
                if count > 1:
                    self._record_event("choice", reason, setting=setting, value=value)

    def _use(self, way: ComputeMode) -> None:
        torch.set_num_threads(way.threads)
        self._counters["learner_threads"] = way.threads
        self._algorithm.operations = way.operations

    def _count(self, done: int) -> None:
        if not done:
            return
        if not self._counters["first_update_at"][0]:
            self._counters["first_update_at"] = time.monotonic()
        self._counters["batch_size"] = self._batch_size
        self._counters["updates"] += done
        self._counters["update_frames"] += done * self._batch_size

    def _make_replay(self, layout: RowLayout, planned: int, device: torch.device) -> Replay:
        rows = planned
        while True:
            try:
                return Replay(layout, rows, device, self._normaliser)
            except torch.OutOfMemoryError:
                if rows // 2 < self._batch_size:
                    raise
                rows //= 2
                self._record_event(
                    "warning", f"out of GPU memory: the replay holds {rows} transitions instead of {planned}"
                )


def _learning_rate(learning: LearningConfig, batch_size: int) -> float:
    """Follow the square root of the batch upwards, as the noise of a gradient does; downwards nothing is gained."""
    return learning.learning_rate * max(1.0, math.sqrt(batch_size / int(learning.learning_rate_batch)))


def _make_algorithm(brief: Brief, device: torch.device, role: LearnerRole) -> ActorCritic:
    learning = brief.config.learning
    return ALGORITHMS[brief.config.algo].of(
        brief.config.flat(),
        brief.spaces.observation_size,
        brief.spaces.action_size,
        learning_rate=_learning_rate(learning, int(learning.batch_size)),
        tau=float(learning.tau),
        actor_delay=int(learning.actor_delay),
        layer_norm=learning.layer_norm,
        atoms=learning.atoms,
        value_range=learning.value_range or (0.0, 0.0),
        device=device,
        seed=brief.config.seed,
        updates_critic=role != "actor",
        updates_actor=role != "critic",
    )
