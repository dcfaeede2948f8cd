"""One run, as its start, its watch and its end know it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from spreeze.adapt.plan import Plan
from spreeze.adapt.waiting import most_waiting_samplers
from spreeze.channels import Channels
from spreeze.channels.transport import PRIVATE_TRANSPORT
from spreeze.config.own_settings import find_algorithm
from spreeze.evaluation.best import earlier_return
from spreeze.host.hardware import UsageMeter, usable_cores
from spreeze.runs.progress import SAMPLER_SUMS, Progress
from spreeze.runs.records import Evaluation, EvaluationUnderWay
from spreeze.runs.result import Result, StopReason
from spreeze.runs.run_folder import RunFolder
from spreeze.supervision.checkpoint_orders import CheckpointOrders, ResumePoint, restore_counters
from spreeze.supervision.learner_restarts import LearnerRestarts
from spreeze.supervision.meter import Meter
from spreeze.supervision.request import Driver, RunRequest
from spreeze.supervision.run_log import RunLog
from spreeze.supervision.run_workers import RunWorkers
from spreeze.supervision.serial import SerialWorkers
from spreeze.supervision.visualisation import Visualisation
from spreeze.supervision.workers import Workers


class Run:
    """Everything that the supervisor holds of a run."""

    def __init__(self, request: RunRequest, plan: Plan, folder: RunFolder) -> None:
        self.request, self.plan, self.folder = request, plan, folder
        resume_point, sampling, learning = request.resume_point, plan.config.sampling, plan.config.learning
        started_at = request.started_at - (0.0 if resume_point is None else resume_point.progress.wall_s)
        is_serial, learners = plan.config.serial, len(learning.learner_roles)
        transport = PRIVATE_TRANSPORT if is_serial else request.transport
        weights_folder = (folder.path / "weights").absolute()
        channels = transport.make_channels(self._most_samplers(plan), learners, weights_folder, request.most_machines)
        self.metrics = channels.metrics
        self.log = RunLog(folder, request.display, started_at)
        make_workers: Callable[..., RunWorkers] = (
            SerialWorkers if is_serial else partial(Workers, gateway=request.gateway)
        )
        self.workers = make_workers(request.env, channels, folder.path, started_at)
        usage, figures = UsageMeter(learning.device), find_algorithm(plan.config.algo).figures
        self.meter = Meter(
            channels.metrics,
            usage,
            started_at,
            sampling.warmup_steps,
            figures,
            learning.is_split,
            request.env.is_realtime,
            channels,
        )
        self.checkpoints = CheckpointOrders(
            folder.path / "checkpoint",
            plan.config.checkpoints.checkpoint_interval_s,
            channels.control,
            learners + is_serial,
            () if resume_point is None else resume_point.checkpoints,
        )
        self.learner_restarts = LearnerRestarts()
        self.driver: Driver | None = None
        self.visualisation: Visualisation | None = None
        self.environment: Mapping[str, Any] | None = None
        """Its description, for checkpoints."""
        self.session = 1
        """How often the run was started: once, and once for each time it was resumed."""
        self.best_return = -math.inf
        self.time_to_target_s: float | None = None
        self.evaluated: Evaluation | None = None
        """The newest evaluation since the run was started or resumed."""
        self.evaluating: EvaluationUnderWay | None = None
        """The evaluation that the evaluator is at, if it takes long."""
        self.evaluations_left_out = 0
        """How many do not count, because a return was not finite."""
        self.mean_rates = (0.0, 0.0)
        """Of sampling and of update frames, once the run ends."""
        self.ended_at_s: float | None = None
        """When it was to end, on the clock of the run."""
        self.last_checkpoint_s = self.last_evaluation_s = 0.0
        self.stop_reason: StopReason | None = None
        self.error: BaseException | None = None
        self.failure: str | None = None
        """Why the run has failed although its limit was reached."""
        self.result: Result | None = None
        if resume_point is not None:
            self._resume_from(resume_point, channels)

    def _most_samplers(self, plan: Plan) -> int:
        """Return how many channels there are: for environments that wait too, which are not known yet."""
        if self.request.env.is_realtime:
            return 1  # with a single one, no sampler begins before the one before it has closed the robot
        is_free = self.request.asked.sampling.samplers == "auto" and not plan.config.serial
        return max(plan.most_samplers, most_waiting_samplers(usable_cores()) if is_free else 0)

    def _resume_from(self, resume_point: ResumePoint, channels: Channels) -> None:
        progress, newest = resume_point.progress, resume_point.checkpoints[0]
        self.session = progress.session + 1
        # What is in best/ may be newer than the checkpoint: of the last evaluation, or of before a kill.
        of_checkpoint = -math.inf if progress.best_return is None else progress.best_return
        self.best_return = max(of_checkpoint, earlier_return(self.folder.path / "best"))
        self.time_to_target_s = progress.time_to_target_s
        self.evaluations_left_out = progress.evaluations_left_out
        restore_counters(channels.metrics, newest, progress)
        channels.weights.resume_from_newest()
        self.meter.begin_at(resume_point.env_steps, int(newest.counters["update_frames"]))

    @property
    def is_interrupted(self) -> bool:
        """Whether somebody has ended it, who wants it gone."""
        return self.stop_reason in ("interrupted", "terminated")

    @property
    def has_config(self) -> bool:
        """Whether the run folder has its settings, which are complete once the environment is known."""
        return self.environment is not None or self.request.resume_point is not None

    @property
    def has_updates(self) -> bool:
        """Whether the learner has ever made an update."""
        return bool(self.metrics.learner["updates"][0])

    def progress(self) -> Progress:
        """Return where the run stands, for a checkpoint."""
        samplers = self.metrics.samplers
        return Progress(
            asked=self.request.asked.flat(),
            settings=self.workers.wanted or self.plan.settings,
            wall_s=self.log.wall_s,
            session=self.session,
            best_return=self._best_return_or_none(),
            time_to_target_s=self.time_to_target_s,
            evaluations_left_out=self.evaluations_left_out,
            samplers={name: float(samplers[name].sum()) for name in SAMPLER_SUMS},
            environment=self.environment,
        )

    def summarise(self, stop_reason: StopReason) -> Result:
        """Write summary.json, and return what it says."""
        if not self.has_config:
            self.folder.write("config.json", self.plan.config.flat())  # no command takes the folder for a run's else
        learner = self.metrics.learner[0]
        sampling_hz, update_frame_hz = self.mean_rates
        result = Result(
            run_dir=self.folder.path,
            stop_reason=stop_reason,
            wall_s=self.log.wall_s if self.ended_at_s is None else self.ended_at_s,
            env_steps=int(learner["rows_stored"]),
            updates=int(learner["updates"]),
            best_return=self._best_return_or_none(),
            time_to_target_s=self.time_to_target_s,
            sampling_hz=round(sampling_hz, 1),
            update_frame_hz=round(update_frame_hz, 1),
            checkpoint_s=round(self.last_checkpoint_s, 3),
            last_evaluation_s=round(self.last_evaluation_s, 3),
            evaluations_left_out=self.evaluations_left_out,
            realtime=self.meter.punctuality(),
            cluster=self.meter.cluster(),
        )
        summary = dataclasses.asdict(result)
        del summary["run_dir"]  # the folder may be moved; the summary moves with it
        self.folder.write("summary.json", summary)
        return result

    def _best_return_or_none(self) -> float | None:
        return None if self.best_return == -math.inf else self.best_return
