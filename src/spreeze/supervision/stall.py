"""Notices a run that goes nowhere although every process shows signs of life.

In: counters, once per second. Out: a warning that says who has made no progress for how long, and why that may be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from spreeze.supervision.restart_policy import GAP_S

SLOW_SHARE = 0.1  # of the limit: updates that took as long are the cause themselves


@dataclass(frozen=True)
class Counts:
    """What is to rise."""

    at: float
    """On the clock of `time.monotonic`."""
    env_steps: int
    """Of all sessions."""
    updates: int
    learner_waited_s: float
    """For rows, since the start."""
    waits_for_person: bool = False
    """Whether the environment does, before a reset."""


class StallWatch:
    """Warns once of each stall."""

    def __init__(self, limit_s: float, warmup_steps: int, batch_size: int) -> None:
        self._limit_s, self._warmup_steps, self._batch_size = limit_s, warmup_steps, batch_size
        self._began: Counts | None = None
        self._stepped = self._updated = self._first_updated = Counts(0.0, 0, 0, 0.0)
        self._looked_at = 0.0
        self._has_warned_of_steps = self._has_warned_of_updates = False

    def look(self, now: Counts) -> str | None:
        """Return a warning if there was no progress for too long, and was none of it before."""
        before, self._looked_at = self._looked_at, now.at
        if self._began is None:
            self._began = self._stepped = self._updated = now
        # After a pause of the whole run, or of the machine, everything is counted from its end.
        if now.at - before > GAP_S or now.waits_for_person:
            self._stepped = replace(self._stepped, at=now.at)
            self._updated = replace(self._updated, at=now.at, learner_waited_s=now.learner_waited_s)
        if now.env_steps != self._stepped.env_steps:
            self._stepped, self._has_warned_of_steps = now, False
        # Before the end of the warm-up there are no updates.
        if now.updates != self._updated.updates or now.env_steps < self._warmup_steps:
            if self._updated.updates == self._began.updates:
                self._first_updated = now
            self._updated, self._has_warned_of_updates = now, False
        unstepped_s, unlearnt_s = now.at - self._stepped.at, now.at - self._updated.at
        if self._lacks_steps(now):
            if unstepped_s >= self._limit_s and not self._has_warned_of_steps:
                self._has_warned_of_steps = True
                return self._no_step(unstepped_s, has_stepped=now.env_steps != self._began.env_steps)
        elif unlearnt_s >= self._limit_s and not self._has_warned_of_updates:
            self._has_warned_of_updates = True
            return self._no_update(unlearnt_s, has_learnt=now.updates != self._began.updates)
        return None

    def _lacks_steps(self, now: Counts) -> bool:
        """Return whether the learner would update if there were more steps.

        A learner that is still starting does not wait for any, although samplers may have filled their rings.
        """
        waited_s = now.learner_waited_s - self._updated.learner_waited_s
        return now.env_steps < self._warmup_steps or waited_s > (now.at - self._updated.at) / 2

    def _no_step(self, seconds: float, has_stepped: bool) -> str:
        if has_stepped:
            return f"no environment step for {seconds:.0f} s: a step or reset of the environment takes long"
        causes = "samplers are still starting, or a constructor, reset or step of the environment takes long"
        return f"no environment step for {seconds:.0f} s: {causes}"

    def _no_update(self, seconds: float, has_learnt: bool) -> str:
        fix = "lower --batch-size or --hidden, or use a GPU"
        if not has_learnt:
            causes = f"the learner is still starting, or one of {self._batch_size} rows takes long here ({fix})"
            return f"no update for {seconds:.0f} s: {causes}"
        usual_s = self._usual_s()
        if usual_s is None or usual_s > SLOW_SHARE * self._limit_s:
            return f"no update for {seconds:.0f} s: one of {self._batch_size} rows takes long here; {fix}"
        causes = "a slow disk, swapped memory or a device that others use may hold the learner up"
        return f"no update for {seconds:.0f} s, and {usual_s:.2g} s each before: {causes}"

    def _usual_s(self) -> float | None:
        """Return the mean duration of an update until now, None if there were too few to tell."""
        first, last = self._first_updated, self._updated
        computed_s = last.at - first.at - (last.learner_waited_s - first.learner_waited_s)
        return max(0.0, computed_s) / (last.updates - first.updates) if last.updates > first.updates else None
