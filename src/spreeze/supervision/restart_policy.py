"""When a process that failed is started again, and when that has become pointless. Pure: moments go in.

`RestartPolicy` has the rule: an environment that fails in every step ends a run within seconds, and one that fails
every few minutes, or whose processes are killed every few seconds, is trained on all night.
"""

from __future__ import annotations

import math

SAMPLED_S = 3.0  # several times what a start takes: who gets this far spends most of its time on sampling
PAUSES_S = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
RARELY_S = 300.0
GAP_S = 5.0  # the supervisor turns twenty times a second: after so long without a turn, it was stopped, not busy


class RestartPolicy:
    """The failures of one role, in one run.

    A start was productive if the process did what it was started for: sampling for `SAMPLED_S`, an evaluation, half a
    minute of showing. After a productive start the next one follows at once. Unproductive ones are followed by pauses
    that grow from none to half a minute. When as many in a row as there is patience were unproductive, and no other
    process of the role is productive meanwhile, there is no hope: samplers end the run with their failure, all others
    are tried again rarely.
    """

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._unproductive = 0
        self._hopeless_for = 0
        self._counted_at = -math.inf

    @property
    def is_hopeless(self) -> bool:
        """Whether so many starts in a row were unproductive that the next one would be too."""
        return self._hopeless_for >= self._patience

    @property
    def unproductive(self) -> int:
        """Unproductive starts in a row."""
        return self._unproductive

    def may_start(self, now: float) -> bool:
        """Say whether the pause after the last failure is over."""
        if self.is_hopeless:
            return now >= self._counted_at + RARELY_S
        if not self._unproductive:
            return True
        return now >= self._counted_at + PAUSES_S[min(self._unproductive, len(PAUSES_S)) - 1]

    def note_productive(self, started_at: float) -> None:
        """Note that a process which was started then does, now, what it is for."""
        self._hopeless_for = 0
        # One that was there before the failures says nothing about how a new one would fare.
        if started_at >= self._counted_at:
            self._unproductive = 0

    def note_failure(self, now: float, started_at: float) -> None:
        """Note the end of a process that was started then and was not productive."""
        if started_at < self._counted_at:
            return  # of several that fail together, one counts: the others are no further try
        self._counted_at = now
        self._unproductive += 1
        self._hopeless_for += 1

    def give_up(self, now: float) -> None:
        """Lose all hope at once, for what would only happen again."""
        self._counted_at, self._hopeless_for = now, self._patience


class Attention:
    """For how long the supervisor has looked without a gap: what it did not see does not count against anybody.

    A run that was stopped with all its processes, or whose machine slept, finds old heartbeats when it continues.
    """

    def __init__(self, now: float) -> None:
        self._last_turn = self._since = now

    def turn(self, now: float, hang_s: float) -> None:
        """Note that the supervisor looks now; after a long gap everyone gets the whole of hang_s again."""
        if now - self._last_turn > min(GAP_S, hang_s / 2):
            self._since = now
        self._last_turn = now

    def seen_s(self, silence_s: float) -> float:
        """Return how much of a silence until this turn was seen."""
        return min(silence_s, self._last_turn - self._since)
