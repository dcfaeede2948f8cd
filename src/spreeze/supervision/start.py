"""Starts a run: its processes first, and their briefs once the environment's spaces are known."""

from __future__ import annotations

import contextlib
import time

from spreeze.channels.transitions import RowLayout
from spreeze.host.hardware import usable_cores
from spreeze.host.own_files import remove_own
from spreeze.host.threads import learner_thread_candidates
from spreeze.supervision.checkpoint_orders import describe
from spreeze.supervision.choices import choose_driver, choose_for_environment
from spreeze.supervision.run import Run
from spreeze.supervision.signals import Signals
from spreeze.supervision.video_orders import VideoOrders
from spreeze.supervision.visualisation import Visualisation

LOOK_POLL_S = 0.002  # all processes wait for the answer
NO_DASHBOARD = "a serial run starts no other process: `spreeze dashboard` shows it"


def start(run: Run, signals: Signals) -> None:
    """Start all processes; they import what they need while the environment is made and described."""
    sampling, learning = run.plan.config.sampling, run.plan.config.learning
    threads = learning.learner_threads
    most = max(learner_thread_candidates(usable_cores())) if threads == "auto" else threads
    run.workers.start(int(sampling.samplers), int(sampling.envs_per_sampler), most, learning.is_split)
    with signals.raising_after(0):  # a constructor may take long, or hang
        while (facts := run.workers.facts()) is None:
            time.sleep(LOOK_POLL_S)  # for another process's work
    spaces = choose_for_environment(run, facts)
    _record_choices(run)
    resume_point, config = run.request.resume_point, run.plan.config
    kept = () if resume_point is None else resume_point.checkpoints
    run.workers.brief(config, spaces, run.plan.settings, kept, run.session)
    if config.serial:
        run.log.record_event("dashboard", NO_DASHBOARD)
    else:
        videos = VideoOrders(run.request.env, config, spaces, run.folder.path, run.log)
        run.visualisation = Visualisation(run.workers, config, videos, run.log.record_event)
    row_bytes = RowLayout(spaces.observation_size, spaces.action_size).row_bytes
    run.log.display.begin(config, run.folder.path, int(config.learning.replay_rows) * row_bytes)
    if config.serial and run.request.asked.watching.dashboard:
        run.log.display.note(f"no dashboard: {NO_DASHBOARD}")
    run.driver = choose_driver(run)


def _record_choices(run: Run) -> None:
    run.log.open_trackers(run.plan.config)
    for warning in run.plan.warnings:
        run.log.warn_once(warning)
    for choice in run.plan.choices:
        run.log.record_event("choice", choice.reason, setting=choice.setting, value=choice.value)
    resume_point = run.request.resume_point
    if resume_point is not None:
        at = f"resumed at {resume_point.progress.wall_s:.1f} s from {describe(resume_point.checkpoints[0])}"
        run.log.record_event("resume", at, session=run.session)
        with contextlib.suppress(OSError):  # a disk that is read-only now keeps it
            remove_own(run.folder.path / "summary.json", run.folder.path)  # it is not over any more
