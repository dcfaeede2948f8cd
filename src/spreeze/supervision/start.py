"""Starts a run: its processes first, and their briefs once the environment's spaces are known."""

from __future__ import annotations

import contextlib
import time

from spreeze.channels.transitions import RowLayout
from spreeze.host.hardware import usable_cores
from spreeze.host.own_files import remove_own
from spreeze.host.threads import learner_thread_candidates
from spreeze.runs.result import StopReason
from spreeze.supervision.checkpoint_orders import describe
from spreeze.supervision.choices import choose_driver, choose_for_environment
from spreeze.supervision.facts import FACTS_POLL_S
from spreeze.supervision.run import Run
from spreeze.supervision.signals import Signals
from spreeze.supervision.video_orders import VideoOrders
from spreeze.supervision.visualisation import Visualisation
from spreeze.supervision.watch import Watch

NO_DASHBOARD = "a serial run starts no other process: `spreeze dashboard` shows it"


def start(run: Run, watch: Watch, signals: Signals) -> StopReason | None:
    """Start all processes; they import what they need while the environment is made and described.

    Return the limit that was reached before they had anything to do, if one was.
    """
    sampling, learning = run.plan.config.sampling, run.plan.config.learning
    threads = learning.learner_threads
    most = max(learner_thread_candidates(usable_cores())) if threads == "auto" else threads
    if (facts := run.request.facts) is None:
        run.workers.start_environment()
    run.workers.start(int(sampling.samplers), int(sampling.envs_per_sampler), most, learning.is_split)
    slow_at: float | None = time.monotonic() + sampling.stall_s
    with signals.raising_after(0):  # a constructor may take long, or hang
        while facts is None and (facts := run.workers.facts(sampling.hang_s)) is None:
            if reason := watch.limit_reached():
                return reason
            if slow_at is not None and time.monotonic() > slow_at:
                slow_at = None
                warning = f"the constructor of {run.request.env.name} takes more than {sampling.stall_s:g} s so far"
                run.log.record_event("warning", warning)
            time.sleep(FACTS_POLL_S)  # for another process's work
    run.environment = facts.description
    watch.spaces = spaces = choose_for_environment(run, facts)
    _record_choices(run)
    resume_point, config = run.request.resume_point, run.plan.config

    def end_at_limit() -> None:
        if watch.limit_reached():
            raise KeyboardInterrupt

    # In the user's own process constructors may take long: then there is nothing to lose yet.
    with signals.raising_after(0) if config.serial else contextlib.nullcontext():
        run.workers.brief(config, spaces, run.plan.settings, resume_point, run.session, end_at_limit)
    if config.serial:
        run.log.record_event("dashboard", NO_DASHBOARD)
    else:
        env = run.request.env
        videos = VideoOrders(env, config, spaces, run.folder.path, run.log)
        # A callable may make another environment where it is to draw; of EnvPool's ids, Gymnasium's are drawn.
        draws = "rgb_array" in facts.render_modes or env.factory is not None or env.backend == "envpool"
        run.visualisation = Visualisation(run.workers, config, videos, run.log.record_event, draws)
    row_bytes = RowLayout.of(spaces).row_bytes
    run.log.display.begin(config, run.folder.path, int(config.learning.replay_rows) * row_bytes)
    if run.visualisation is not None:
        run.visualisation.open_page(run.log.display.show_address)
    if config.serial and run.request.config.watching.dashboard:
        run.log.display.note(f"no dashboard: {NO_DASHBOARD}")
    run.driver = choose_driver(run)
    return None


def _record_choices(run: Run) -> None:
    run.log.open_trackers(run.plan.config)
    for warning in run.plan.warnings:
        run.log.warn_once(warning)
    for choice in run.plan.choices:
        run.log.record_event("choice", choice.reason, setting=choice.setting, value=choice.value)
    resume_point = run.request.resume_point
    if resume_point is not None:
        newest = resume_point.checkpoints[0]
        at = f"resumed at {resume_point.progress.wall_s:.1f} s from {describe(newest)}"
        has_left_out = resume_point.without_replay and newest.extents
        left_out = ", which are left out: --without-replay" if has_left_out else ""
        run.log.record_event("resume", at + left_out, session=run.session)
        with contextlib.suppress(OSError):  # a disk that is read-only now keeps it
            remove_own(run.folder.path / "summary.json", run.folder.path)  # it is not over any more
