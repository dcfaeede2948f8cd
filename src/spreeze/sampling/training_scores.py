"""Scores versions of the policy by training episodes, where there is no second environment for evaluations.

In: which version acts, and the episodes that end. Out: for each of them, an evaluation as a message: of the version
that acted at its end, with the returns of the last few. One episode alone says little: the policy explores, and tasks
begin at a different place each time.
"""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import asdict

import numpy as np

from spreeze.channels.control import Messages
from spreeze.channels.rejected_rows import is_usable
from spreeze.channels.weights import WeightsFile
from spreeze.runs.records import Evaluation


class TrainingScores:
    """The last few episodes in which a policy chose every action."""

    def __init__(self, started_at: float, episodes: int, messages: Messages) -> None:
        """started_at: `time.monotonic()` at the start of the command. episodes: of each evaluation."""
        self._started_at, self._episodes, self._messages = started_at, episodes, messages
        self._last: deque[tuple[float, int]] = deque(maxlen=episodes)
        self._acting: WeightsFile | None = None
        self._has_random_actions = False

    def acts(self, policy: WeightsFile | None) -> None:
        """Record which version has chosen an action; None for one that was drawn at random."""
        self._acting = policy
        self._has_random_actions |= policy is None

    def ended(self, episode_return: float, length: int) -> None:
        """Send the evaluation that an episode completes."""
        is_random, self._has_random_actions = self._has_random_actions, False
        if is_random or self._acting is None:
            return
        self._last.append((float(episode_return), length))
        if len(self._last) < self._episodes:
            return
        returns, lengths = zip(*self._last, strict=True)
        are_usable = all(map(is_usable, returns))
        evaluation = Evaluation(
            wall_s=round(time.monotonic() - self._started_at, 3),
            env_steps=int(self._acting.metadata["env_steps"]),
            updates=int(self._acting.metadata["updates"]),
            version=self._acting.version,
            mean_return=float(np.mean(returns)) if are_usable else math.nan,
            std_return=float(np.std(returns)) if are_usable else math.nan,
            returns=returns,
            lengths=lengths,
            source="training",
        )
        if not is_usable(episode_return):
            self._last.pop()  # it was recorded once, and does not spoil the next ones
        self._messages.send("evaluation", **asdict(evaluation))
