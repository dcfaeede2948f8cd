"""Ends a run in order, whatever ends it: a limit, a signal, or a failure."""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from spreeze.errors import ProcessFailed, UsageError, one_line
from spreeze.host.shell import for_shell, from_folder
from spreeze.runs.result import StopReason
from spreeze.runs.written_aside import remove_written_aside
from spreeze.supervision.nothing_done import why_no_step, why_no_update
from spreeze.supervision.run import Run
from spreeze.supervision.serial import RaisedInRound
from spreeze.supervision.signals import Signals
from spreeze.supervision.watch import Watch
from spreeze.views.closing import program

SAVING_S = 600.0  # for the checkpoint at the end, of a replay that is large and a disk that is slow
TOLD_AFTER_S = 1.0
TERMINATED_SAVING_S = 8.0  # who terminates a run kills it soon after
LAST_EVALUATION_S, MOST_LAST_EVALUATION_S = 5.0, 30.0  # of a short run and of a long one
EVALUATED_AT: tuple[StopReason, ...] = ("max_seconds", "max_env_steps", "max_updates", "stopped")
KEPT_POLL_S = 0.1  # for Ctrl-C, while the dashboard is kept


class NeverBegan(KeyboardInterrupt):
    """Somebody has ended a run before its environment was known: it has no settings, and nothing to keep."""


@contextlib.contextmanager
def ending_in_order(run: Run, watch: Watch, signals: Signals) -> Iterator[None]:
    """Take all steps of the end after the block, each of them even if one before it has failed."""
    with contextlib.ExitStack() as steps:  # the last that is pushed is the first that is taken
        last = steps.enter_context(contextlib.ExitStack())
        steps.callback(_close_visualisation, run)
        steps.callback(_finish_videos, run, signals)
        steps.callback(lambda: run.log.display.end(run.result))
        steps.callback(_close_trackers, run, signals)
        steps.callback(_close_workers, run, signals, last)  # after the summary: pages show how the run has ended
        steps.callback(_summarise, run)
        steps.callback(_end_workers, run, watch, signals)
        try:
            yield
        except BaseException as error:
            run.error = error
            raise


def _end_workers(run: Run, watch: Watch, signals: Signals) -> None:
    """Ask all processes to end, wait a little, and kill what is left. A second Ctrl-C shortens the wait."""
    run.mean_rates, run.ended_at_s = run.meter.mean_rates(), run.log.wall_s  # before the stopping: it is no training
    began, told = time.monotonic(), set[str]()
    with contextlib.suppress(OSError):  # a full disk may be why we are here
        watch.measure_last()
    grace_s = TERMINATED_SAVING_S if signals.stop_reason == "terminated" else SAVING_S

    def note_once(what: str, text: str) -> None:
        if what not in told:
            told.add(what)
            run.log.display.note(text)

    def read_messages() -> None:
        if run.checkpoints.is_under_way:
            run.last_checkpoint_s = time.monotonic() - began
        if run.workers.is_evaluating:
            run.last_evaluation_s = time.monotonic() - began
        if run.last_checkpoint_s > TOLD_AFTER_S:
            rows = int(run.metrics.learner["rows_stored"][0])
            note_once("checkpoint", f"Saving the last checkpoint, of {rows:,} transitions; Ctrl-C leaves it out")
        if run.last_evaluation_s > TOLD_AFTER_S:
            most = f"at most {evaluating_s:.0f} s"
            note_once("evaluation", f"Evaluating the newest version, for {most}; --no-last-evaluation leaves it out")
        # What goes wrong after the stop changes nothing any more; a message is handled whole.
        with signals.held_back(), contextlib.suppress(ProcessFailed, UsageError, OSError):
            watch.read_messages()

    evaluating_s = 0.0
    read_messages()  # a learner may have begun since the last look
    evaluating_s = 0.0 if signals.count else _last_evaluation_s(run)  # Ctrl-C just after a limit means now, too
    if run.has_updates and run.workers.has_learner:
        run.checkpoints.order(at_end=True)
    with contextlib.suppress(KeyboardInterrupt), signals.raising_after(min(1, signals.count)):
        run.workers.ask_to_end(read_messages, grace_s if run.checkpoints.is_under_way else 0.0, evaluating_s)
    run.workers.kill()
    remove_written_aside(run.folder.path)
    read_messages()
    if evaluating_s:
        _record_last_evaluation(run, evaluating_s)
    run.failure = why_no_step(run)
    run.log.warn_once(why_no_update(run))
    if run.checkpoints.is_under_way:
        run.log.warn_once("there was no time for a checkpoint at the end: what is kept is the one before")


def _last_evaluation_s(run: Run) -> float:
    """Return how long the newest version may be evaluated before the end: 0 if nobody waits for that."""
    is_wanted = run.plan.config.evaluation.last_evaluation and run.stop_reason in EVALUATED_AT
    if not is_wanted or run.error is not None or run.plan.config.serial:
        return 0.0
    if not run.has_updates or not run.workers.has_learner or run.ended_at_s is None:
        return 0.0
    return min(max(LAST_EVALUATION_S, run.ended_at_s / 20), MOST_LAST_EVALUATION_S, run.ended_at_s / 4)


def _record_last_evaluation(run: Run, most_s: float) -> None:
    """Say what became of the evaluation at the end."""
    evaluation, ended_at_s = run.evaluated, run.ended_at_s
    assert ended_at_s is not None
    seconds = round(run.last_evaluation_s, 3)
    if evaluation is not None and evaluation.wall_s > ended_at_s:
        took = f"the newest version, {evaluation.version}, was evaluated at the end, in {seconds:.1f} s"
        with_return = f": return {evaluation.mean_return:.1f}" if evaluation.counts else ""
        run.log.record_event("last_evaluation", took + with_return, seconds=seconds)
        run.log.display.note(f"{took[0].upper()}{took[1:]}{with_return}")
    elif run.last_evaluation_s >= 0.9 * most_s:  # looked at up to 100 times per second
        reason = f"the newest version was not evaluated: that takes more than {most_s:.1f} s"
        run.log.record_event("last_evaluation", reason, seconds=seconds)
        run.log.display.note(f"{reason[0].upper()}{reason[1:]}")
    else:
        run.last_evaluation_s = 0.0  # it was evaluated before, or there is no evaluator


def _summarise(run: Run) -> None:
    if isinstance(run.error, UsageError | NeverBegan):
        return  # there is nothing to sum up
    if run.error is None and run.stop_reason is not None:
        if run.failure is not None:
            run.log.record_event("error", run.failure)
        run.result = run.summarise(run.stop_reason)
        return
    with contextlib.suppress(OSError):  # a full disk may be why we are here
        match run.error:
            case ProcessFailed() as error:
                run.log.record_event("error", error.reason, role=error.role, traceback=error.traceback)
            case RaisedInRound(error=raised, role=role):
                reason = f"{type(raised).__name__}: {one_line(raised)}"
                text = "".join(traceback.format_exception(raised))
                run.log.record_event("error", reason, role=role, traceback=text)
        run.summarise("failed")


def _close_workers(run: Run, signals: Signals, last: contextlib.ExitStack) -> None:
    """Let go of all processes; of a dashboard that is to be kept, after everything else."""
    has_failed = run.error is not None or run.failure is not None  # what went wrong is told only after this
    wanted = run.plan.config.watching.keep_dashboard and not has_failed and signals.stop_reason != "terminated"
    # From a thread that gets no signals it could never be ended; who sends two has no patience for it.
    if wanted and threading.current_thread() is threading.main_thread() and signals.count <= 1:
        last.callback(run.workers.close)
        last.callback(_keep_dashboard, run, signals)
    else:
        run.workers.close()


def _keep_dashboard(run: Run, signals: Signals) -> None:
    """Wait for Ctrl-C while the dashboard is there. The run has its result, and others may resume it meanwhile."""
    page = run.visualisation
    if page is None or not page.address or signals.stop_reason == "terminated":
        return
    page.require_page()
    run.folder.close()
    run.log.display.note(f"The dashboard stays until Ctrl-C, at\n  {page.address}")  # a line of 80 holds an address
    count = signals.count
    while signals.count == count and page.has_page:
        time.sleep(KEPT_POLL_S)  # for a signal


def _close_trackers(run: Run, signals: Signals) -> None:
    """Let trackers keep what they have. Ctrl-C shortens the wait for an upload; a full disk may be why we end."""
    with contextlib.suppress(KeyboardInterrupt, OSError), signals.raising_after(min(1, signals.count)):
        if run.plan.config.output.wandb:
            run.log.display.note("Uploading to Weights & Biases; Ctrl-C leaves it to `wandb sync`")
        run.log.close_trackers(run.error is not None, run.is_interrupted)


def _finish_videos(run: Run, signals: Signals) -> None:
    if run.visualisation is None or run.error is not None:
        return
    if run.is_interrupted:
        if run.plan.config.watching.video and (run.folder.path / "best" / "policy.safetensors").exists():
            here = Path.cwd()
            words = f"{program(here)} watch {for_shell(from_folder(here, run.folder.path))} --record best.mp4"
            run.log.display.note(f"There is no video of an interrupted run; {words} makes one")
        return
    # The run is over and summed up: a disk that is full now, or Ctrl-C, only costs the video.
    with contextlib.suppress(KeyboardInterrupt, OSError), signals.raising_after(signals.count):
        run.visualisation.finish()


def _close_visualisation(run: Run) -> None:
    if run.visualisation is not None:
        run.visualisation.close()
