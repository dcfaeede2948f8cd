"""A learner: takes transitions out of the channels into the replay, updates networks, publishes weights.

It is whole, or one side of two, the critics' or the actor's, each on a device and in a process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from spreeze.algorithms.actor_critic import ActorCritic
from spreeze.channels.brief import Brief
from spreeze.channels.control import Messages
from spreeze.channels.pacing import RatioGate
from spreeze.channels.transitions import RowLayout
from spreeze.config import LearnerRole
from spreeze.learning.checkpoint_writer import NotSaved, Saved, report
from spreeze.learning.compute_modes import ComputeModes
from spreeze.learning.exchange import Exchange
from spreeze.learning.factory import make_algorithm, make_checkpoint_writer, make_replay, open_device
from spreeze.learning.intake import Intake
from spreeze.learning.launches import Launches
from spreeze.learning.normalisation import Normaliser
from spreeze.learning.progress_counters import ProgressCounters
from spreeze.learning.publishing import Publisher, Reporter
from spreeze.learning.restore import start_from_checkpoint
from spreeze.learning.updates import make_updates

IDLE_WAIT_S = 0.0005  # a vector step of samplers takes about as long: nothing is gained by looking more often


class Learner:
    """Everything that one process learns with. `turn` is the loop; lock step and serial mode order the same steps
    differently.

    On a GPU nothing here waits for it, except that the host runs at most two launches ahead: rows are copied, weights
    and figures read back while updates run.
    """

    def __init__(
        self, brief: Brief, messages: Messages, role: LearnerRole = "all", idle_wait_s: float = IDLE_WAIT_S
    ) -> None:
        """idle_wait_s: how long to wait before looking again for rows."""
        config, learning, channels = brief.config, brief.config.learning, brief.channels
        device, record_event = open_device(config, role), messages.record_event
        layout = RowLayout.of(brief.spaces)
        counters = channels.metrics.actor if role == "actor" else channels.metrics.learner
        self._control, self._slot, self._messages = channels.control, brief.slot, messages
        self._counters, self._observation, self._idle_wait_s = counters, layout.observation, idle_wait_s

        algorithm = make_algorithm(brief, device, role)
        self._compute_modes = ComputeModes(learning, algorithm, counters, record_event)
        self._normaliser = Normaliser(layout.observation_size, device) if learning.normalise_observations else None
        self._intake = Intake(brief, layout, counters, reader=1 if role == "actor" else 0)
        self._replay = make_replay(layout, learning, device, self._normaliser, record_event)
        self._updates = make_updates(learning.update_engine, algorithm, self._replay, record_event)
        self._gate = RatioGate(config, channels.metrics, channels.control, role)
        self._progress = ProgressCounters(counters, device)
        self._launches = Launches(learning, algorithm, self._updates, self._progress, counters, record_event)
        # The policy is the actor's side's to publish.
        self._publisher = None if role == "critic" else Publisher(brief, algorithm, self._normaliser, record_event)
        self._reporter = Reporter(counters, self._updates, algorithm.figures)
        self.exchange: Exchange | None = None
        """With the other side, where the learner is split."""
        if role != "all":
            assert isinstance(algorithm, ActorCritic), "the plan splits no other"
            self.exchange = Exchange(brief, algorithm, counters)

        start = start_from_checkpoint(
            brief, role, algorithm, self._replay, self._normaliser, counters, self.is_stopping, record_event
        )
        self._min_rows = start.min_rows
        self._progress.start_at(start.updates)
        if self.exchange is not None:
            self.exchange.start_at(start.updates)
        self._checkpoint_writer = make_checkpoint_writer(
            brief, role, algorithm, self._replay, self._normaliser, start
        )

    def turn(self) -> None:
        """Take in new rows, launch the updates that are allowed, publish and report when it is time."""
        if self.learn():
            self.publish_and_report()

    def learn(self) -> bool:
        """Take in new rows and launch the updates that are allowed, or wait a little; say whether there were any."""
        self.start_turn()
        self.take_in()
        allowed = self.updates_allowed()
        if self.exchange is not None:
            allowed = min(allowed, self._exchange_freely(self.exchange))
        began = time.monotonic()
        if not allowed:
            self._wait_for_rows(began)
            return False
        self._follow_orders()
        self._launches.run(allowed)
        if not self._compute_modes.is_chosen:
            self._compute_modes.record(time.monotonic() - began)
        return True

    def publish_and_report(self) -> None:
        """Publish the policy and report the figures when it is time, once there was an update."""
        if self._publisher is not None and self._progress.has_launched:
            began = time.monotonic()
            self._publisher.turn(began, self._progress.launched)
            self._counters["publish_s"] += time.monotonic() - began
        self.report()

    def report(self) -> None:
        """Report the figures when it is time, once there was an update."""
        if self._progress.has_launched:
            began = time.monotonic()
            self._reporter.turn(began)
            self._counters["report_s"] += time.monotonic() - began

    def finish(self, beat: Callable[[], None] = lambda: None) -> None:
        """Wait for the updates that are under way, publish their result and save the last checkpoint.

        beat: called again and again while it is being written.
        """
        self._launches.settle()
        if self._progress.has_launched:
            self._reporter.report()
            self.publish()
            if self._publisher is not None:
                self._publisher.close()
                self._control.announce_last_version()  # which the evaluator waits for
        self._control.beat(self._slot)
        self.take_in()  # the rest of the rings: both sides end with the same rows
        if self._checkpoint_writer is not None:
            self._report_saved(self._checkpoint_writer.finish(self.is_stopping))
            self.save(*self._control.last_checkpoint, beat)

    # --- steps of a turn ---------------------------------------------------------------------------------------

    @property
    def launched(self) -> int:
        """Updates that were launched, in this process and before its checkpoint."""
        return self._progress.launched

    def is_stopping(self) -> bool:
        """Give a sign of life; say whether the run is to end."""
        self._control.beat(self._slot)
        return self._control.stopping()

    def start_turn(self) -> None:
        """Give a sign of life; start the checkpoint that is ordered, or continue it."""
        self._control.beat(self._slot)
        if self._checkpoint_writer is None:
            return
        number, oldest_row = self._control.checkpoint
        if number:
            snapshot = self._progress.snapshot(self._launches.batch_size)
            self._checkpoint_writer.begin(number, oldest_row, snapshot)
            self._report_saved(self._checkpoint_writer.turn())

    def take_in(self, until: Sequence[int] | None = None) -> int:
        """Take rows into the replay, up to given positions of the rings or all there are; return how many."""
        began, count = time.monotonic(), 0
        for rows in self._intake.usable_rows(until):
            self._replay.add(rows)
            count += len(rows)
            if self._normaliser is not None:
                self._normaliser.add(rows[:, self._observation])
        self._replay.flush()
        if self._normaliser is not None:
            self._normaliser.take_over()
        self._counters["replay_rows"] = len(self._replay)
        self._counters["ingest_s"] += time.monotonic() - began
        return count

    def rows_taken(self) -> tuple[int, ...]:
        """Return how many rows were ever taken of each ring."""
        return self._intake.positions()

    def updates_allowed(self) -> int:
        """Return how many updates may be launched, as far as rows and the limits of the run are concerned."""
        if not len(self._replay) or self._counters["rows_consumed"][0] < self._min_rows:
            return 0
        return self._gate.updates_allowed(self._progress.launched)

    def update_once(self) -> None:
        """Launch one update and wait for it."""
        self._follow_orders()
        self._launches.run(1)
        self._launches.settle()
        if not self._compute_modes.is_chosen:
            self._compute_modes.record_untimed()

    def publish(self) -> None:
        """Publish the policy as it is now, if there was an update since the last time."""
        if self._publisher is not None and self._progress.launched:
            began = time.monotonic()
            self._publisher.publish(self._progress.launched)
            self._counters["publish_s"] += time.monotonic() - began

    def save(self, number: int, oldest_row: int, beat: Callable[[], None] = lambda: None) -> None:
        """Write a checkpoint and wait for it, unless it was begun before. beat: called meanwhile."""

        def live() -> None:
            self._control.beat(self._slot)
            beat()

        if (writer := self._checkpoint_writer) is not None:
            snapshot = self._progress.snapshot(self._launches.batch_size)
            writer.begin(number, oldest_row, snapshot, updates_continue=False)
            self._report_saved(writer.finish(live))

    def _exchange_freely(self, exchange: Exchange) -> int:
        """Send and take over parameters; return how many updates may use those that are here."""
        began = time.monotonic()
        exchange.turn(self._progress.launched)
        self._counters["exchange_s"] += time.monotonic() - began
        return exchange.updates_allowed(self._progress.launched)

    def _wait_for_rows(self, began: float) -> None:
        """Wait a little: too few rows yet, or too many updates for them."""
        self._launches.settle()
        if self._idle_wait_s:
            time.sleep(self._idle_wait_s)  # rows come from processes that need the core
        self._counters["ratio_wait_s"] += time.monotonic() - began

    def _follow_orders(self) -> None:
        """Use the ordered batch size and threads, and say in the counters whether all that is ordered is in use."""
        is_chosen = self._compute_modes.is_chosen
        is_followed = self._launches.follow(self._control.batch_size, may_change=is_chosen)
        if is_chosen:
            self._compute_modes.use_threads(self._control.learner_threads)
        self._counters["is_steady"] = is_followed and is_chosen and self._updates.is_steady

    def _report_saved(self, saved: Saved | NotSaved | None) -> None:
        if saved is not None:
            self._messages.send("checkpoint", **report(saved))
