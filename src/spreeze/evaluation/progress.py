"""Reports an evaluation that takes long before it is complete, for people to see: how far it is, and its mean so far.

In: the episodes of an evaluation as they end. Out: messages, none of an evaluation of less than a second.
"""

from __future__ import annotations

import time
from dataclasses import asdict

import numpy as np

from spreeze.channels.control import Messages
from spreeze.channels.rejected_rows import is_usable
from spreeze.runs.records import EvaluationUnderWay

QUICK_S = 1.0  # nobody can read what is gone before the page is drawn again
INTERVAL_S = 0.25  # as often as a terminal is drawn


class Progress:
    """The evaluation under way."""

    def __init__(self, messages: Messages, episodes: int) -> None:
        """episodes: how many an evaluation has at most."""
        self._messages, self._episodes = messages, episodes
        self._returns: list[float] = []
        self._version, self._due_at, self._is_new = 0, 0.0, False

    def begin(self, version: int) -> None:
        """Count from here."""
        self._returns.clear()
        self._version, self._due_at, self._is_new = version, time.monotonic() + QUICK_S, True

    def ended(self, episode_return: float) -> None:
        """Count an episode."""
        self._returns.append(episode_return)
        self._is_new = True

    def turn(self) -> None:
        """Send a report if there is something to report, and it is time. Called after every step."""
        if not self._is_new or (now := time.monotonic()) < self._due_at:
            return
        self._is_new, self._due_at = False, now + INTERVAL_S
        has_mean = self._returns and all(map(is_usable, self._returns))
        mean = float(np.mean(self._returns)) if has_mean else None
        under_way = EvaluationUnderWay(self._version, len(self._returns), self._episodes, mean)
        self._messages.send("evaluating", **asdict(under_way))
