"""When a process that failed is restarted, and when no longer. Pure: times are arguments.

`RestartPolicy` has the rule: an environment that fails in every step ends a run within seconds. One that fails every
few minutes, or whose processes are killed every few seconds, does not end it.
"""

from __future__ import annotations

import math

SAMPLED_S = 3.0  # several times what a start takes: a sampler that gets this far spends most of its time on sampling
PAUSES_S = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
RARELY_S = 300.0
GAP_S = 5.0  # the supervisor turns 20 times per second: after so long without a turn it was stopped, not busy


class RestartPolicy:
    """The failures of one role, in one run.

    A start was productive if the process did what it was started for: sampling for `SAMPLED_S`, an evaluation, half a
    minute of showing. After a productive start the next one follows at once. Unproductive ones are followed by pauses
    that grow from none to half a minute. After `patience` unproductive starts in a row, while no other process of the
    role was productive, the policy gives up: samplers end the run with their failure, others are restarted rarely.
    """

    def __init__(self, patience: int) -> None:
        """patience: unproductive starts in a row after which to give up."""
        self._patience = patience
        self._unproductive = 0
        self._unproductive_of_all = 0  # since any process of the role was productive
        self._counted_at = -math.inf

    @property
    def has_given_up(self) -> bool:
        """Whether so many starts in a row were unproductive that the next one would be too."""
        return self._unproductive_of_all >= self._patience

    @property
    def unproductive(self) -> int:
        """Unproductive starts in a row."""
        return self._unproductive

    def may_start(self, now: float) -> bool:
        """Return whether the pause after the last failure is over."""
        if self.has_given_up:
            return now >= self._counted_at + RARELY_S
        if not self._unproductive:
            return True
        return now >= self._counted_at + PAUSES_S[min(self._unproductive, len(PAUSES_S)) - 1]

    def record_productive(self, started_at: float) -> None:
        """Record that a process that was started at this time is productive."""
        self._unproductive_of_all = 0
        # A process from before the failures does not show that a new one would work.
        if started_at >= self._counted_at:
            self._unproductive = 0

    def record_failure(self, now: float, started_at: float) -> None:
        """Record the failure of a process that was started at this time and was not productive."""
        if started_at < self._counted_at:
            return  # of several that fail together, one counts
        self._counted_at = now
        self._unproductive += 1
        self._unproductive_of_all += 1

    def give_up(self, now: float) -> None:
        """Give up at once, after a failure that would happen again."""
        self._counted_at, self._unproductive_of_all = now, self._patience


class Attention:
    """For how long the supervisor has looked without a gap: a silence that it did not see does not count as a hang.

    A run that was stopped with all its processes, or whose machine slept, finds old heartbeats when it continues.
    """

    def __init__(self, now: float) -> None:
        self._last_turn = self._since = now

    def turn(self, now: float, hang_s: float) -> None:
        """Record that the supervisor looks now; after a long gap every process has the whole of hang_s again."""
        if now - self._last_turn > min(GAP_S, hang_s / 2):
            self._since = now
        self._last_turn = now

    def seen_s(self, silence_s: float) -> float:
        """Return how much of a silence until this turn was seen."""
        return min(silence_s, self._last_turn - self._since)
