"""The evaluator: scores versions of the policy with environments and seeds of its own, and keeps the best."""

from __future__ import annotations

import time

from spreeze.channels.brief import Brief
from spreeze.channels.control import MessageWriter
from spreeze.evaluation.evaluator import Evaluator
from spreeze.host.hardware import usable_cores

POLL_S = 0.02  # versions come a few times a second
# The evaluator takes at most this share of the machine: on two cores, more would slow down the learner; on ten and
# more, it may evaluate all the time.
MAX_MACHINE_SHARE = 0.1


def run(brief: Brief, messages: MessageWriter) -> None:
    """Evaluate the newest version, again and again, until told to stop."""
    control, interval_s = brief.channels.control, brief.config.evaluation.eval_interval_s
    control.beat(brief.slot)
    evaluator, weights = Evaluator(brief, messages), brief.channels.weights.reader()
    due_at, max_duty = 0.0, min(1.0, MAX_MACHINE_SHARE * usable_cores())

    def stopping() -> bool:
        control.beat(brief.slot)
        return control.stopping()

    while not stopping():
        now = time.monotonic()
        newest = weights.newest() if now >= due_at else None
        if newest is None:
            time.sleep(POLL_S)  # for the next version; others need the core
            continue
        if evaluator.evaluate(newest, stopping) is None:
            break
        spent_s = time.monotonic() - now
        due_at = now + max(interval_s, spent_s / max_duty)
    evaluator.close()
