"""How many samplers another machine is asked for: fewer while they only wait, more again once they do not.

Pure: times and counters are arguments. A machine begins with one sampler for each CPU that its agent holds, which is
the most that can be of use there. What is changed here is only what the learner, or the link, can take in.
"""

from __future__ import annotations

import math
from typing import NamedTuple

WINDOW_S = 10.0  # waits come in bursts; a sampler that is started needs a second or more of it
TOO_MUCH, LITTLE = 0.5, 0.1  # shares of their time that samplers wait
SPARE = 1.25  # more than would be kept busy: they would wait a fifth of their time, far from either bound


class Waits(NamedTuple):
    """What samplers and their rows have waited, in seconds, since their agent began."""

    ratio_s: float = 0.0
    """Samplers, because of min_updates_per_step."""
    ring_s: float = 0.0
    """Samplers, for room in their rings."""
    link_s: float = 0.0
    """Full blocks, for the link."""
    learner_s: float = 0.0
    """Blocks that have arrived, for the learner to make room."""

    @property
    def of_samplers_s(self) -> float:
        """What samplers have waited in all."""
        return self.ratio_s + self.ring_s

    @property
    def for_link(self) -> bool:
        """Whether it was mostly for the link."""
        return self.ring_s > self.ratio_s and self.link_s > self.learner_s

    def since(self, before: Waits) -> Waits:
        """Return what was waited since then."""
        return Waits(*(now - then for now, then in zip(self, before, strict=True)))


class Demand:
    """The number of samplers of one machine."""

    def __init__(self, most: int) -> None:
        self.most = self.samplers = most
        """As many as it may have, and as it is to have now."""
        self._began_at: float | None = None
        self._before = Waits()

    def turn(self, now: float, at_work: int, waits: Waits) -> str | None:
        """Look at what samplers have waited until now, all together; return why another number is asked for, if so.

        at_work: how many there are.
        """
        if at_work != self.samplers:
            self._began_at = None  # they are being started, or leave
            return None
        if self._began_at is None:
            self._began_at, self._before = now, waits
            return None
        if now - self._began_at < WINDOW_S:
            return None
        waited = waits.since(self._before)
        share = waited.of_samplers_s / ((now - self._began_at) * at_work)
        self._began_at = None
        if share > TOO_MUCH and self.samplers > 1:
            return self._ask_for_fewer(min(1.0, share), "the link" if waited.for_link else "the learner")
        if share < LITTLE and self.samplers < self.most:
            self.samplers = min(self.most, 2 * self.samplers)
            return f"{self.samplers} of {self.most} samplers from here on: they do not wait any more"
        return None

    def _ask_for_fewer(self, share: float, what: str) -> str | None:
        enough = max(1, math.ceil(SPARE * (1.0 - share) * self.samplers))
        if enough >= self.samplers:
            return None
        self.samplers = enough
        waited = f"they waited {100 * share:.0f}% of the time for it"
        return f"{enough} of {self.most} samplers are enough: {what} is the bottleneck, {waited}"
