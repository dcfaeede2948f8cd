"""The evaluator: scores versions of the policy with environments and seeds of its own, and keeps the best."""

from __future__ import annotations

import bdb
import time
from collections.abc import Callable

from spreeze.channels.brief import Brief
from spreeze.channels.control import Messages, MessageWriter
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.examine import Examination, examine
from spreeze.environments.optional_packages import is_bullet
from spreeze.evaluation.evaluator import Evaluator
from spreeze.evaluation.last import LastEvaluation
from spreeze.evaluation.throttle import Throttle
from spreeze.host.hardware import usable_cores
from spreeze.host.random_numbers import own_random_numbers

POLL_S = 0.02  # versions come a few times per second
MAX_WARNINGS = 5  # about the environment: `spreeze doctor ENV` has more
SERIAL_S = 0.5  # somebody waits: 240 steps of a classic task take 20 ms, and few of a slow one show the same


def run(brief: Brief, messages: MessageWriter) -> None:
    """Evaluate the newest version, again and again, until stopped; then the last one, if that is ordered."""
    control = brief.channels.control

    def stopping() -> bool:
        control.beat(brief.slot)
        return control.stopping()

    # Here, where it delays nothing: the learner is still importing torch.
    if not brief.generation:
        warn_about_environment(brief.env, messages, stopping)
    if stopping() and not control.evaluate_until:
        return
    evaluator, weights = Evaluator(brief, messages), brief.channels.weights.reader()
    throttle = Throttle(brief.config.evaluation.eval_interval_s, usable_cores(), brief.started_at)
    last = LastEvaluation(brief)

    while not stopping():
        newest = weights.newest() if throttle.is_due else None
        if newest is None:
            time.sleep(POLL_S)  # for the next version; others need the core
            continue
        last.begins(newest)
        throttle.begin()
        if evaluator.evaluate(newest, last.is_futile) is None:
            break
        throttle.end()
        last.has_ended()
    last.make(evaluator, weights)
    evaluator.close()


def warn_about_environment(env: EnvSpec, messages: Messages, stopping: Callable[[], bool]) -> None:
    """Examine an environment, once at the start of a run; raise what it raises, as an evaluation would."""
    if not _is_examined(env):
        return
    examination = examine(env, stopping)
    if stopping():
        return
    if examination.error is not None:
        raise examination.error
    _record_warnings(env, examination, messages)


def warn_in_serial_run(env: EnvSpec, messages: Messages, beat: Callable[[], None]) -> None:
    """Do the same in the process that trains, which goes on as if nothing had been examined.

    What the environment raises is a warning, as it is where the evaluator examines it: unless it was by chance, the
    training meets it again. beat: called before every step.
    """
    if not _is_examined(env):
        return

    def beat_on() -> bool:
        beat()
        return False

    with own_random_numbers():
        examination = examine(env, beat_on, SERIAL_S)
    if isinstance(examination.error, bdb.BdbQuit):
        raise examination.error  # from a breakpoint in the environment: somebody has seen enough
    if examination.error is not None:
        problem = next(finding.problem for finding in examination.findings if finding.is_fatal)
        messages.record_event("warning", f"{env.name}, when it was checked: {problem}")
    _record_warnings(env, examination, messages)


def _is_examined(env: EnvSpec) -> bool:
    # EnvPool's environments are others than Gymnasium's; what is wrong with PyBullet's, its users cannot change.
    return not (env.backend == "envpool" or is_bullet(env.name))


def _record_warnings(env: EnvSpec, examination: Examination, messages: Messages) -> None:
    # What is fatal ends the run in the process that meets it, with its own message.
    warnings = [finding for finding in examination.findings if not (finding.is_fatal or finding.is_note)]
    for finding in warnings[:MAX_WARNINGS]:
        messages.record_event("warning", f"{env.name}: {finding.problem}; {finding.fix}")
