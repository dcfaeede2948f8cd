"""When the evaluator begins the next evaluation: by the CPU time that the last one took, not by its wall time.

An environment that waits, such as a simulator behind a socket, costs hardly any CPU time: it is evaluated again and
again. One that computes takes at most MAX_MACHINE_SHARE of the cores since the start of the run, and the last
evaluation, however long it waits for them. What the share would have allowed and was not used can be used later, for
MAX_SAVED_S: while the learner starts, nothing can be evaluated, so that a curve begins with several points. While a
curve is behind EARLY_POINTS in EARLY_S, which only happens where an episode costs much, the share is EARLY_SHARE.
"""

from __future__ import annotations

import time

from spreeze.host.process_times import read_process_times

# On two cores, more slows the learner down; on twenty and more, an evaluator of one process may always be at work.
MAX_MACHINE_SHARE = 0.05
MAX_SAVED_S = 10.0  # about what a start takes, from the command to the first version
# People watch the first two minutes, in which a point every six seconds shows the shape of a curve.
EARLY_S, EARLY_POINTS, EARLY_SHARE = 120.0, 20, 0.1


class Throttle:
    """Says when an evaluation may begin."""

    def __init__(self, interval_s: float, cores: int, started_at: float) -> None:
        """interval_s: the least time from the start of one to that of the next. started_at: when the run began."""
        self._interval_s, self._cores = interval_s, cores
        self._began_at = self._cpu_s = 0.0
        self._started_at = self._paid_at = started_at
        """By when the share, added up since the start, is what was spent."""
        self._points = 0
        self.due_at = 0.0
        """On the clock of `time.monotonic`."""

    @property
    def is_due(self) -> bool:
        """Whether one may begin now."""
        return time.monotonic() >= self.due_at

    def begin(self) -> None:
        """Count from here. Costs some milliseconds, as `end` does: processes of the environment are looked for."""
        self._began_at, self._cpu_s = time.monotonic(), read_process_times().cpu_s

    def end(self) -> None:
        """Set when the next one is due: so that CPU time of this process and its children is a small enough share."""
        spent_s = max(0.0, read_process_times().cpu_s - self._cpu_s)  # a child that nobody waited for takes its away
        self.charge(self._began_at, spent_s)

    def charge(self, began_at: float, spent_s: float) -> None:
        """Set when the next one is due after one that began then and took so much CPU time."""
        self._points += 1
        run_s = began_at - self._started_at
        is_behind = run_s < EARLY_S and self._points < EARLY_POINTS * run_s / EARLY_S
        most_cores = self._cores * (EARLY_SHARE if is_behind else MAX_MACHINE_SHARE)
        self._paid_at = max(self._paid_at, began_at - MAX_SAVED_S) + spent_s / most_cores
        self.due_at = max(began_at + self._interval_s, self._paid_at)
