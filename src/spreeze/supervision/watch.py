"""Watches a run until it is to end: messages, failures, limits, and what is due from time to time."""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace

from spreeze.channels.rejected_rows import what_was_rejected
from spreeze.channels.spaces import Spaces
from spreeze.channels.transitions import RowLayout
from spreeze.errors import CheckpointError, ConfigError, LearnerFailed, ProcessFailed, one_line
from spreeze.host.files import reason_of
from spreeze.runs.records import Evaluation, EvaluationUnderWay
from spreeze.runs.result import StopReason
from spreeze.supervision.checkpoint_orders import describe, failure_of
from spreeze.supervision.launch import Message
from spreeze.supervision.run import Run
from spreeze.supervision.signals import Signals
from spreeze.supervision.stall import Counts, StallWatch
from spreeze.supervision.training_best import TrainingBest

TICK_S = 0.05  # how late a limit may be noticed; a tick costs about 50 microseconds
METRICS_INTERVAL_S = 1.0
LEAST_WINDOW_S = 0.25  # of the figures at the end: rates over less say little


class Watch:
    """What the supervisor does between start and end."""

    def __init__(self, run: Run) -> None:
        self._run, self._log = run, run.log
        self.spaces: Spaces | None = None
        """Those of the environment, once they are known."""
        self._asked_to_stop, self._addresses = False, set[str]()
        self._measured_at, self._has_warned_of_rejected = -math.inf, False
        sampling, learning = run.plan.config.sampling, run.plan.config.learning
        self._best: TrainingBest | None = None
        if sampling.realtime is not None:
            self._best = TrainingBest(run.folder.path)
        self._stall = StallWatch(sampling.stall_s, sampling.warmup_steps, int(learning.batch_size))

    def until_limit(self, signals: Signals) -> StopReason:
        """Watch until a limit is reached or a signal comes; return which."""
        run = self._run
        metrics_due_at = time.monotonic() + METRICS_INTERVAL_S

        def is_over() -> bool:
            return signals.stop_reason is not None or self.limit_reached() is not None

        while True:
            try:
                self.read_messages()
                run.workers.require_alive()
            except LearnerFailed as failure:
                self._restart_learner(failure)
            run.workers.turn()
            for warning in run.folder.turn():
                self._log.record_event("warning", warning)
            if run.visualisation is not None:
                run.visualisation.turn()
            now = time.monotonic()
            if run.has_updates:
                run.checkpoints.turn(now)
            if run.driver is not None:
                run.driver.turn(now)
            if now >= metrics_due_at:
                # After a pause of the machine, one line and not one for each second missed.
                metrics_due_at = max(metrics_due_at + METRICS_INTERVAL_S, now)
                self._measure()
            reason = signals.stop_reason or self.limit_reached()
            if reason is not None:
                return reason
            with signals.raising_after(1):  # a second Ctrl-C stops even a step that hangs in this process
                run.workers.work(TICK_S, is_over)

    # --- messages ----------------------------------------------------------------------------------------------

    def read_messages(self) -> None:
        """Handle what processes have sent since the last time."""
        for name, message in self._run.workers.read_messages():
            match message.pop("kind"):
                case "evaluation":
                    self._take_evaluation(Evaluation.of_message(message))
                case "evaluating":
                    self._run.evaluating = EvaluationUnderWay(**message)
                    self._log.evaluating(self._run.evaluating)
                case "checkpoint":
                    self._take_checkpoint(message)
                case "event":
                    self._log.record_event(message.pop("event"), message.pop("reason"), **message, role=name)
                case "stop":
                    self._take_stop(name)
                case "failed":
                    raise ProcessFailed(name, message["reason"], message["traceback"])
                case "refused":
                    self._take_refusal(message["reason"])
                case "address":
                    self._take_address(name, message["url"])

        self._warn_of_rejected()

    def _warn_of_rejected(self) -> None:
        learner, spaces = self._run.metrics.learner[0], self.spaces
        if self._has_warned_of_rejected or not learner["rows_rejected"] or spaces is None:
            return
        self._has_warned_of_rejected = True
        what = what_was_rejected(self._run.request.env.name, RowLayout.of(spaces), learner)
        self._log.record_event("warning", f"{what}: they are left out, and counted", role="learner")

    def _take_evaluation(self, evaluation: Evaluation) -> None:
        run = self._run
        run.evaluated, run.evaluating = evaluation, None
        if self._best is not None:
            self._log.warn_once(self._best.take(evaluation))
        if evaluation.counts:
            run.best_return = max(run.best_return, evaluation.mean_return)
            target = run.plan.config.limits.target_return
            is_in_time = run.ended_at_s is None or evaluation.wall_s <= run.ended_at_s
            is_first = is_in_time and run.time_to_target_s is None
            if target is not None and evaluation.mean_return >= target and is_first:
                run.time_to_target_s = evaluation.wall_s
        else:
            run.evaluations_left_out += 1
        self._log.evaluated(evaluation, run.plan.config.env)
        if run.visualisation is not None:
            run.visualisation.evaluated(evaluation)

    def _take_checkpoint(self, report: Message) -> None:
        orders = self._run.checkpoints
        failure = failure_of(report) if orders.is_ordered(report) else None
        try:
            seconds = None if failure else orders.take(report, self._run.progress())
        except OSError as error:
            seconds, failure = None, f"a checkpoint could not be saved, the run continues: {reason_of(error)}"
        if failure:
            orders.forget_order()
            self._log.warn_once(failure)
        elif seconds is not None:
            self._log.record_event("checkpoint", describe(orders.kept[0]), seconds=round(seconds, 3))

    def _take_stop(self, name: str) -> None:
        if not self._asked_to_stop:
            self._asked_to_stop = True
            self._log.record_event("stop", f"the {name} asks to end the run", role=name)

    def _take_refusal(self, reason: str) -> None:
        """End a run that was to use other machines, and cannot, unless it has begun without them."""
        if not self._run.metrics.learner["first_update_at"][0]:
            raise ConfigError(reason)
        self._log.record_event("warning", f"other machines are not used: {reason}")

    def _take_address(self, name: str, url: str) -> None:
        if url not in self._addresses:
            self._addresses.add(url)
            # Without what follows the "?": the journal is shown to people who may look, but not stop the run.
            self._log.record_event("address", f"the {name} is at {url.partition('?')[0]}", role=name)

    # --- failures, limits and figures --------------------------------------------------------------------------

    def _restart_learner(self, failure: LearnerFailed) -> None:
        """Restart the learner from the newest checkpoint; raise its failure where that would not help."""
        run, orders = self._run, self._run.checkpoints
        if not run.workers.may_lose_learner:
            raise failure
        if failure.error == CheckpointError.__name__ and not orders.drop_newest():
            raise failure
        kept = orders.kept
        if not run.learner_restarts.may_start_again(failure, kept[0].number if kept else 0, run.has_updates):
            raise failure
        how = f"restarted from {describe(kept[0])}" if kept else "restarted from nothing: there is no checkpoint yet"
        reason = f"{failure.role} failed, {how}: {failure.reason}"
        self._log.record_event("warning", reason, role=failure.role, traceback=failure.traceback)
        orders.forget_order()
        try:
            run.workers.restart_learners(kept)
        except OSError as error:
            raise LearnerFailed(failure.role, f"it cannot be started again: {one_line(error)}") from error

    def limit_reached(self) -> StopReason | None:
        """Return the limit that was reached, if one was."""
        run, limits = self._run, self._run.plan.config.limits
        if run.time_to_target_s is not None:
            return "target_return"
        if self._asked_to_stop:
            return "stopped"
        if run.driver is not None and run.driver.is_over:
            return "measured"
        if limits.max_updates is not None and run.metrics.learner["updates"][0] >= limits.max_updates:
            return "max_updates"
        if limits.max_env_steps is not None and run.workers.env_steps_taken_in() >= limits.max_env_steps:
            return "max_env_steps"
        if limits.max_seconds is not None and time.monotonic() - self._log.started_at >= limits.max_seconds:
            return "max_seconds"
        return None

    def measure_last(self) -> None:
        """Record the figures at the end: of all that was done since the last time, or of a run of under a second."""
        has_begun = self._run.metrics.samplers["env_steps"].any()
        if has_begun and time.monotonic() - self._measured_at >= LEAST_WINDOW_S:
            self._measure()

    def _measure(self) -> None:
        run, workers = self._run, self._run.workers
        self._measured_at = time.monotonic()
        pids_by_role = {"supervisor": [os.getpid()], **workers.pids_by_role()}
        samplers = workers.samplers_at_work + workers.channels.machines.samplers_at_work
        if "evaluator" not in pids_by_role:
            run.evaluating = None  # it was at it when it died
        measured = run.meter.measure(samplers, pids_by_role, workers.channels_in_use())
        measurement = replace(measured, evaluating=run.evaluating)
        self._log.measured(measurement)
        learner, now = run.metrics.learner[0], time.monotonic()
        counts = Counts(
            now,
            int(run.metrics.samplers["env_steps"].sum()) + int(learner["steps_offset"]),
            int(learner["updates"]),
            float(learner["ratio_wait_s"]),
            bool(run.metrics.clock["waits_for_person"][0]),
        )
        if warning := self._stall.look(counts):
            self._log.record_event("warning", warning)
        if run.visualisation is not None:
            run.visualisation.measured(measurement)
