"""The evaluation of the last version, before the end of a run: bounded in time, while the learner saves itself.

In: the supervisor's order, which has a deadline. Out: one evaluation, unless the last version was scored already.
"""

from __future__ import annotations

import time

from spreeze.channels.brief import Brief
from spreeze.channels.weights import WeightsFile, WeightsReader
from spreeze.evaluation.evaluator import Evaluator

POLL_S = 0.01  # for a learner that ends


class LastEvaluation:
    """Decides which version an evaluator still scores when the run ends."""

    def __init__(self, brief: Brief) -> None:
        self._control, self._slot = brief.channels.control, brief.slot
        self._newest_version = brief.channels.weights.open_version()
        self._at_work: WeightsFile | None = None
        self._scored: WeightsFile | None = None

    def begins(self, weights: WeightsFile) -> None:
        """Record which version is being scored."""
        self._at_work = weights

    def has_ended(self) -> None:
        """Record that it was scored."""
        self._scored = self._at_work

    def is_futile(self) -> bool:
        """Return whether the evaluation under way is to end: the run ends, and this is not its last version."""
        self._control.beat(self._slot)
        if not self._control.stopping():
            return False
        is_newest = self._at_work is not None and int(self._newest_version[0]) == self._at_work.version
        return self._is_late() or not is_newest

    def make(self, evaluator: Evaluator, reader: WeightsReader) -> None:
        """Score the last version, if that is ordered and there is time."""
        while not self._is_late():
            self._control.beat(self._slot)
            if self._control.has_last_version:
                last = reader.newest() or self._at_work
                if last is not None and last is not self._scored:
                    self.begins(last)
                    evaluator.evaluate(last, self.is_futile, plays_all=True)
                return
            time.sleep(POLL_S)  # for the learner, which has updates under way

    def _is_late(self) -> bool:
        return time.monotonic() >= self._control.evaluate_until
