"""The supervisor: starts, watches and stops every process of a run, and owns its run folder.

In: a config and an environment. Out: a `Result`, and a run folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from spreeze.adapt.adaptation import Adaptation
from spreeze.adapt.plan import Plan, plan_checkpoints, plan_memory, plan_processes
from spreeze.adapt.remember import Memory, recall_parts
from spreeze.adapt.task import leaves_all_to_us, task_key
from spreeze.channels import Channels
from spreeze.channels.control import ControlChannel
from spreeze.channels.metrics import MetricsChannel
from spreeze.channels.spaces import Spaces
from spreeze.channels.transitions import RowLayout, make_channel
from spreeze.channels.weights import WeightsChannel
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.config.run_settings import Settings
from spreeze.environments.backend import check_exists, choose_backend, look_at
from spreeze.errors import (
    CheckpointError,
    LearnerFailed,
    ProcessFailed,
    RunFailed,
    RunFolderError,
    UsageError,
    one_line,
)
from spreeze.host.capture_output import output_to
from spreeze.host.files import reason_of
from spreeze.host.hardware import Machine, UsageMeter, this_machine, usable_cores
from spreeze.host.logs import print_forgivingly
from spreeze.host.threads import learner_thread_candidates
from spreeze.runs.progress import SAMPLER_SUMS, Progress
from spreeze.runs.records import Evaluation
from spreeze.runs.result import Result, StopReason
from spreeze.runs.run_folder import RunFolder
from spreeze.supervision.checkpoint_orders import Checkpoints, Standing, describe, failure_of, show_standing
from spreeze.supervision.learner_restarts import LearnerStarts
from spreeze.supervision.meter import Meter
from spreeze.supervision.showing import Recorder, Showing
from spreeze.supervision.signals import Signals
from spreeze.supervision.workers import Crew
from spreeze.views.display import Display
from spreeze.views.trackers import Trackers, make_trackers, require_trackers

SAVING_S = 600.0  # for the checkpoint at the end, of a replay that is large and a disk that is slow
TERMINATED_SAVING_S = 8.0  # who terminates a run kills it soon after
TICK_S = 0.05  # how late a limit may be noticed; a tick costs about 50 microseconds
METRICS_INTERVAL_S = 1.0


class Driver(Protocol):
    """What changes the settings of a run while it goes on."""

    @property
    def is_over(self) -> bool:
        """Whether the run has served its purpose."""
        ...

    def turn(self, now: float) -> None:
        """Look at the run, and do what is due."""
        ...


MakeDriver = Callable[[Crew, Plan], Driver]


def supervise(
    config: Config, env: EnvSpec, started_at: float, display: Display, make_driver: MakeDriver | None = None
) -> Result:
    """Run a training from its first process to its summary. make_driver: what drives it instead of the adaptation."""
    require_trackers(config)
    with output_to(Path(os.devnull)):
        check_exists(env)  # it imports the user's modules, which may print
    machine, memory = this_machine(), Memory()
    parts = recall_parts(machine, config.learning.hidden)
    plan = plan_processes(config, machine, parts=parts)
    key = task_key(config, plan.config.learning, machine)
    if config.adaptation.adapt and not config.adaptation.fresh and make_driver is None and env.factory is None:
        plan = plan_processes(config, machine, memory.recall(key), parts)
    with Signals() as signals, keeping(RunFolder.create(config)) as folder:
        try:
            supervisor = Supervisor(plan, config, env, started_at, folder, display)
            if make_driver is None and config.adaptation.adapt:
                make_driver = supervisor.adapting(machine, memory, key)
            return supervisor.run(signals, make_driver)
        except UsageError:
            folder.discard()  # the run never began: there is nothing to keep
            raise


@contextlib.contextmanager
def keeping(folder: RunFolder) -> Iterator[RunFolder]:
    """Let go of a run folder at the end. What the system refuses, and what was not written, are errors in words."""
    print_as_before = print_forgivingly()
    try:
        yield folder
    except OSError as error:
        raise RunFailed(
            f"the system refused what the run needs: {one_line(error)} (disk full? `ulimit -n`? folder gone?)"
        ) from error
    finally:
        lost = folder.close()
        print_as_before()
    if lost is not None:
        raise RunFailed(lost)


class Supervisor:
    """One run."""

    def __init__(
        self,
        plan: Plan,
        asked: Config,
        env: EnvSpec,
        started_at: float,
        folder: RunFolder,
        display: Display,
        standing: Standing | None = None,
    ) -> None:
        """started_at: on the clock of `time.monotonic`; of a run that is resumed, as if it had never stopped."""
        self._plan, self._asked, self._env, self._started_at = plan, asked, env, started_at
        self._folder, self._display, self._standing = folder, display, standing
        sampling, readers = plan.config.sampling, 2 if plan.config.learning.is_split else 1
        channels = Channels(
            tuple(make_channel(sampling.transport, f"ring-{i}", readers) for i in range(plan.most_samplers)),
            WeightsChannel((folder.path / "weights").absolute(), plan.config.learning.weights_transport),
            MetricsChannel(),
            ControlChannel(),
        )
        self._metrics = channels.metrics
        self._crew = Crew(env, channels, folder.path, started_at)
        self._driver: Driver | None = None
        self._showing: Showing | None = None
        self._asked_to_stop, self._addresses = False, set[str]()
        self._meter = Meter(
            channels.metrics,
            UsageMeter(plan.config.learning.device),
            started_at,
            sampling.warmup_steps,
            plan.config.learning.is_split,
        )
        self._checkpoints = Checkpoints(
            folder.path / "checkpoint",
            plan.config.checkpoints.checkpoint_interval_s,
            channels.control,
            readers,
            () if standing is None else standing.checkpoints,
        )
        self._learner_starts = LearnerStarts()
        self._trackers = Trackers()
        self._warned: set[str] = set()
        self._mean_rates = (0.0, 0.0)
        self._best_return = -math.inf
        self._time_to_target_s: float | None = None
        self._sitting = 1
        if standing is not None:
            self._go_on_from(standing, channels)

    def _go_on_from(self, standing: Standing, channels: Channels) -> None:
        progress = standing.progress
        self._sitting = progress.sitting + 1
        self._best_return = -math.inf if progress.best_return is None else progress.best_return
        self._time_to_target_s = progress.time_to_target_s
        show_standing(channels.metrics, standing.checkpoints[0], progress)
        channels.weights.go_on_from_newest()
        self._meter.begin_at(standing.env_steps, int(standing.checkpoints[0].counters["update_frames"]))

    def adapting(self, machine: Machine, memory: Memory, key: str) -> MakeDriver:
        """Return what adapts this run, and remembers what it has found unless the user has set a part of it."""
        asked = self._asked
        is_all_chosen = leaves_all_to_us(asked)

        def tell(kind: str, reason: str, **details: object) -> None:
            self._record_event(kind, reason, **details)
            self._display.adapted(reason)

        def remember(settings: Settings) -> None:
            if is_all_chosen:
                memory.keep(key, settings)
                self._warn_once(memory.warning)

        def make(crew: Crew, plan: Plan) -> Driver:
            self._warn_once(memory.warning)
            return Adaptation(crew, plan, asked, machine, tell, remember)

        return make

    def run(self, signals: Signals, make_driver: MakeDriver | None) -> Result:
        """Start everything, watch until a limit is reached, stop everything, sum up."""
        try:
            stop_reason = self._start_and_watch(signals, make_driver)
        except UsageError:
            self._end_crew(signals)
            self._crew.close()
            self._end_trackers(signals, has_failed=True)
            self._display.end(None)
            raise
        except BaseException as error:
            self._end_crew(signals)
            self._end_showing()
            self._display.end(None)
            with contextlib.suppress(OSError):  # a full disk may be why we are here
                if isinstance(error, ProcessFailed):
                    self._record_event("error", error.reason, role=error.role, traceback=error.traceback)
                self._summarise("failed")
            self._crew.close()
            self._end_trackers(signals, has_failed=True)
            raise
        self._end_crew(signals)
        result = self._summarise(stop_reason)
        self._crew.close()
        self._end_trackers(signals, has_failed=False)
        self._display.end(result)
        if self._showing is not None and stop_reason != "terminated":  # who terminates a run wants it gone
            # The run is over and summed up: a disk that is full now, or Ctrl-C, only costs the video.
            with contextlib.suppress(KeyboardInterrupt, OSError), signals.raising_after(signals.count):
                self._showing.finish()
        self._end_showing()
        return result

    def _start_and_watch(self, signals: Signals, make_driver: MakeDriver | None) -> StopReason:
        try:
            sampling, learning = self._plan.config.sampling, self._plan.config.learning
            threads = learning.learner_threads
            most = max(learner_thread_candidates(usable_cores())) if threads == "auto" else threads
            self._crew.start(int(sampling.samplers), int(sampling.envs_per_sampler), most, learning.is_split)
            with signals.raising_after(0):  # a constructor may take long, or hang
                log_path = self._folder.path / "logs" / "supervisor.log"
                backend = choose_backend(self._env, log_path)
                spaces = look_at(self._env, log_path)
            self._plan = self._plan.take(backend)
            self._plan_memory_and_go(spaces)
            if make_driver is not None:
                self._driver = make_driver(self._crew, self._plan)
            return self._watch(signals)
        except KeyboardInterrupt:
            return signals.stop_reason or "interrupted"

    def _plan_memory_and_go(self, spaces: Spaces) -> None:
        layout = RowLayout(spaces.observation_size, spaces.action_size)
        width = self._standing.checkpoints[0].row_width if self._standing is not None else 0
        if width not in (0, layout.width):
            raise RunFolderError(f"{self._env.name} has other observations or actions than when the run stopped")
        plan = plan_memory(self._plan, layout, this_machine())
        self._folder.write("config.json", plan.config.flat())
        rows = (self._folder.path / "checkpoint" / "replay").glob("rows-*")
        room = shutil.disk_usage(self._folder.path).free + sum(path.stat().st_size for path in rows)
        self._plan, warning = plan_checkpoints(plan, layout, room)
        plan = self._plan
        self._warn_once(warning)
        self._trackers = make_trackers(plan.config, self._folder.path, self._started_at)
        for choice in plan.choices:
            self._record_event("choice", choice.reason, setting=choice.setting, value=choice.value)
        kept = () if self._standing is None else self._standing.checkpoints
        if self._standing is not None:
            where = f"goes on at {self._standing.progress.wall_s:.1f} s from {describe(kept[0])}"
            self._tell("resume", where, sitting=self._sitting)
            with contextlib.suppress(OSError):  # a disk that is read-only now keeps it
                (self._folder.path / "summary.json").unlink()  # it is not over any more
        self._crew.brief(plan.config, spaces, plan.settings, kept, self._sitting)
        recorder = Recorder(self._env, plan.config, spaces, self._folder.path, self._tell, self._display.note)
        self._showing = Showing(self._crew, plan.config, recorder, self._tell)
        replay_bytes = int(plan.config.learning.replay_rows) * layout.row_bytes
        self._display.begin(plan.config, self._folder.path, replay_bytes)

    # --- watch -------------------------------------------------------------------------------------------------

    def _watch(self, signals: Signals) -> StopReason:
        metrics_due_at = time.monotonic() + METRICS_INTERVAL_S
        while True:
            try:
                self._read_messages()
                self._crew.require_alive()
            except LearnerFailed as failure:
                self._restart_learner(failure)
            self._crew.turn()
            for warning in self._folder.turn():
                self._tell("warning", warning)
            if self._showing is not None:
                self._showing.turn()
            now = time.monotonic()
            if self._metrics.learner["updates"][0]:
                self._checkpoints.turn(now)
            if self._driver is not None:
                self._driver.turn(now)
            if now >= metrics_due_at:
                # After a pause of the machine, one line and not one for each second missed.
                metrics_due_at = max(metrics_due_at + METRICS_INTERVAL_S, now)
                self._measure()
            reason = signals.stop_reason or self._limit_reached()
            if reason is not None:
                return reason
            time.sleep(TICK_S)  # the supervisor waits for nothing in particular, at little cost

    def _read_messages(self) -> None:
        for name, message in self._crew.read_messages():
            kind = message.pop("kind")
            if kind == "evaluation":
                self._take_evaluation(Evaluation(**message))
            elif kind == "checkpoint":
                self._take_checkpoint(message)
            elif kind == "event":
                self._tell(message.pop("event"), message.pop("reason"), **{**message, "role": name})
            elif kind == "stop" and not self._asked_to_stop:
                self._asked_to_stop = True
                self._tell("stop", f"the {name} asks to end the run", role=name)
            elif kind == "address" and message["url"] not in self._addresses:
                self._addresses.add(message["url"])
                # Without what follows the "?": the journal is shown to people who may look, but not stop the run.
                self._tell("address", f"the {name} is at {message['url'].partition('?')[0]}", role=name)
                self._display.note(f"{name}: {message['url']}")

    def _take_checkpoint(self, report: dict[str, Any]) -> None:
        failure = failure_of(report) if self._checkpoints.is_ordered(report) else None
        try:
            seconds = None if failure else self._checkpoints.take(report, self._progress())
        except OSError as error:
            seconds, failure = None, f"a checkpoint could not be saved, the run goes on: {reason_of(error)}"
        if failure:
            self._checkpoints.forget_order()
            self._warn_once(failure)
        elif seconds is not None:
            self._record_event("checkpoint", describe(self._checkpoints.kept[0]), seconds=round(seconds, 3))

    def _progress(self) -> Progress:
        samplers = self._metrics.samplers
        return Progress(
            asked=self._asked.flat(),
            settings=self._crew.wanted or self._plan.settings,
            wall_s=round(time.monotonic() - self._started_at, 3),
            sitting=self._sitting,
            best_return=None if self._best_return == -math.inf else self._best_return,
            time_to_target_s=self._time_to_target_s,
            samplers={name: float(samplers[name].sum()) for name in SAMPLER_SUMS},
        )

    def _restart_learner(self, failure: LearnerFailed) -> None:
        """Let the learner go on from the newest checkpoint; raise its failure where that would not help."""
        if self._plan.config.sampling.transport == "queue":
            raise failure  # it may have left half a message, or a lock taken
        if failure.error == CheckpointError.__name__ and not self._checkpoints.drop_newest():
            raise failure
        kept, has_updates = self._checkpoints.kept, bool(self._metrics.learner["updates"][0])
        if not self._learner_starts.may_start_again(failure, kept[0].number if kept else 0, has_updates):
            raise failure
        where = f"goes on from {describe(kept[0])}" if kept else "begins anew: there is no checkpoint yet"
        self._tell(
            "warning",
            f"{failure.role} failed, it {where}: {failure.reason}",
            role=failure.role,
            traceback=failure.traceback,
        )
        self._checkpoints.forget_order()
        try:
            self._crew.restart_learners(kept)
        except OSError as error:
            raise LearnerFailed(failure.role, f"it cannot be started again: {one_line(error)}") from error

    def _take_evaluation(self, evaluation: Evaluation) -> None:
        self._folder.append("evaluations", dataclasses.asdict(evaluation))
        self._best_return = max(self._best_return, evaluation.mean_return)
        target = self._plan.config.limits.target_return
        if target is not None and evaluation.mean_return >= target and self._time_to_target_s is None:
            self._time_to_target_s = evaluation.wall_s
        self._display.evaluated(evaluation)
        self._warn_of(self._trackers.evaluated(evaluation))
        if self._showing is not None:
            self._showing.evaluated(evaluation)

    def _limit_reached(self) -> StopReason | None:
        limits = self._plan.config.limits
        learner = self._metrics.learner[0]
        if self._time_to_target_s is not None:
            return "target_return"
        if self._asked_to_stop:
            return "stopped"
        if self._driver is not None and self._driver.is_over:
            return "measured"
        if limits.max_updates is not None and learner["updates"] >= limits.max_updates:
            return "max_updates"
        if limits.max_env_steps is not None and self._rows_consumed() >= limits.max_env_steps:
            return "max_env_steps"
        if limits.max_seconds is not None and time.monotonic() - self._started_at >= limits.max_seconds:
            return "max_seconds"
        return None

    def _rows_consumed(self) -> int:
        """Return the rows that every learner has taken."""
        taken = [int(self._metrics.learner["rows_consumed"][0]), int(self._metrics.actor["rows_consumed"][0])]
        return min(taken) if self._plan.config.learning.is_split else taken[0]

    def _measure(self) -> None:
        pids_by_role = {"supervisor": [os.getpid()], **self._crew.pids_by_role()}
        rings = self._crew.channels.transitions
        written = [rings[child.index] for child in self._crew.members if child.role == "sampler"]
        measurement = self._meter.measure(self._crew.samplers_at_work, pids_by_role, written)
        self._folder.append("metrics", dataclasses.asdict(measurement))
        self._display.show(measurement)
        self._warn_of(self._trackers.measured(measurement))
        if self._showing is not None:
            self._showing.measured(measurement)

    def _record_event(self, kind: str, reason: str, **details: object) -> None:
        wall_s = round(time.monotonic() - self._started_at, 3)
        self._folder.append("events", {"wall_s": wall_s, "kind": kind, "reason": reason, **details})

    def _warn_of(self, warnings: list[str]) -> None:
        for warning in warnings:
            self._warn_once(warning)

    def _tell(self, kind: str, reason: str, **details: object) -> None:
        self._record_event(kind, reason, **details)
        if kind == "warning":
            self._display.warn(reason)

    def _warn_once(self, warning: str | None) -> None:
        if warning is not None and warning not in self._warned:
            self._warned.add(warning)
            self._tell("warning", warning)

    # --- end ---------------------------------------------------------------------------------------------------

    def _end_crew(self, signals: Signals) -> None:
        """Ask all processes to end, wait a little, and kill what is left. A second Ctrl-C shortens the wait."""
        self._mean_rates = self._meter.mean_rates()  # before the stopping, which is not training
        self._driver = None  # it refers to this supervisor: a circle would keep memory and descriptors for a while
        if self._metrics.learner["updates"][0] and self._crew.has_learner:
            self._checkpoints.order(at_end=True)
        grace_s = TERMINATED_SAVING_S if signals.stop_reason == "terminated" else SAVING_S
        with contextlib.suppress(KeyboardInterrupt), signals.raising_after(min(1, signals.count)):
            self._crew.ask_to_end(grace_s if self._checkpoints.is_under_way else 0.0)
        self._crew.kill()
        with contextlib.suppress(ProcessFailed, OSError):  # what goes wrong after the stop changes nothing any more
            self._read_messages()
        if self._checkpoints.is_under_way:
            self._warn_once("there was no time for a checkpoint at the end: what is kept is the one before")

    def _end_trackers(self, signals: Signals, has_failed: bool) -> None:
        """Let trackers keep what they have. Ctrl-C shortens the wait for an upload; a full disk may be why we end."""
        with contextlib.suppress(KeyboardInterrupt, OSError), signals.raising_after(min(1, signals.count)):
            self._warn_of(self._trackers.close(has_failed))

    def _end_showing(self) -> None:
        if self._showing is not None:
            self._showing.close()
            self._showing = None  # a circle too

    def _summarise(self, stop_reason: StopReason) -> Result:
        learner = self._metrics.learner[0]
        sampling_hz, update_frame_hz = self._mean_rates
        result = Result(
            run_dir=self._folder.path,
            stop_reason=stop_reason,
            wall_s=round(time.monotonic() - self._started_at, 3),
            env_steps=int(learner["rows_stored"]),
            updates=int(learner["updates"]),
            best_return=None if self._best_return == -math.inf else self._best_return,
            time_to_target_s=self._time_to_target_s,
            sampling_hz=round(sampling_hz, 1),
            update_frame_hz=round(update_frame_hz, 1),
        )
        summary = dataclasses.asdict(result)
        del summary["run_dir"]  # the folder may be moved; the summary moves with it
        self._folder.write("summary.json", summary)
        return result
