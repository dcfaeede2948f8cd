"""Notices a run that goes nowhere although every process shows signs of life.

In: counters, once per second. Out: a warning that says who has made no progress for how long, and why that may be.
"""

from __future__ import annotations

from dataclasses import dataclass

from spreeze.supervision.restart_policy import GAP_S


@dataclass(frozen=True)
class Counts:
    """What is to rise."""

    at: float
    """On the clock of `time.monotonic`."""
    env_steps: int
    rows: int
    """Rows that the learner has taken in."""
    updates: int
    learner_waited_s: float
    """For rows, since the start."""
    waits_for_person: bool = False
    """Whether the environment does, before a reset."""


class StallWatch:
    """Warns once of each stall."""

    def __init__(self, limit_s: float, warmup_steps: int, batch_size: int) -> None:
        self._limit_s, self._warmup_steps, self._batch_size = limit_s, warmup_steps, batch_size
        self._stepped: Counts | None = None
        self._updated: Counts | None = None
        self._looked_at = 0.0
        self._has_warned_of_steps = self._has_warned_of_updates = False

    def look(self, now: Counts) -> str | None:
        """Return a warning if there was no progress for too long, and was none of it before."""
        before, self._looked_at = self._looked_at, now.at
        # After a pause of the whole run, or of the machine, everything is counted from its end.
        if self._stepped is None or self._updated is None or now.at - before > GAP_S or now.waits_for_person:
            self._stepped = self._updated = now
            return None
        if now.env_steps != self._stepped.env_steps:
            self._stepped, self._has_warned_of_steps = now, False
        # Before the end of the warm-up there are no updates.
        if now.updates != self._updated.updates or now.rows < self._warmup_steps:
            self._updated, self._has_warned_of_updates = now, False
        unstepped_s, unlearnt_s = now.at - self._stepped.at, now.at - self._updated.at
        if self._lacks_rows(now):
            if unstepped_s >= self._limit_s and not self._has_warned_of_steps:
                self._has_warned_of_steps = True
                return f"no environment step for {unstepped_s:.0f} s: a step or reset of the environment takes long"
        elif unlearnt_s >= self._limit_s and not self._has_warned_of_updates:
            self._has_warned_of_updates = True
            cause = f"one of {self._batch_size} rows takes long here; lower --batch-size or --hidden, or use a GPU"
            return f"no update for {unlearnt_s:.0f} s: {cause}"
        return None

    def _lacks_rows(self, now: Counts) -> bool:
        """Return whether the learner would update if it had more rows."""
        assert self._updated is not None
        waited_s = now.learner_waited_s - self._updated.learner_waited_s
        return now.rows < self._warmup_steps or waited_s > (now.at - self._updated.at) / 2
