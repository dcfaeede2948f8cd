from __future__ import annotations

import math
import time
from typing import Any

import pytest

from spreeze.channels.control import MessageList
from spreeze.channels.weights import WeightsFile
from spreeze.runs.records import Evaluation
from spreeze.sampling.training_scores import TrainingScores

SCORED_EPISODES = 5


def version(number: int) -> WeightsFile:
    return WeightsFile({}, {"env_steps": str(100 * number), "updates": str(10 * number)}, number, 0.0)


class Episodes:
    """Episodes of two steps, and what is sent of them."""

    def __init__(self) -> None:
        self.messages = MessageList()
        self.scores = TrainingScores(time.monotonic(), SCORED_EPISODES, self.messages)

    def play(self, episode_return: float, first: int | None, last: int | None) -> list[Evaluation]:
        """Return the evaluations of an episode in which these versions act first and last; None: random actions."""
        for number in (first, last):
            self.scores.acts(None if number is None else version(number))
        self.scores.ended(episode_return, 2)
        sent: list[dict[str, Any]] = self.messages.take()
        assert {message.pop("kind") for message in sent} <= {"evaluation"}
        return [Evaluation.of_message(message) for message in sent]


def test_an_episode_scores_the_version_that_acted_at_its_end_with_the_mean_of_the_last_five() -> None:
    episodes = Episodes()
    for number in range(1, SCORED_EPISODES):
        assert not episodes.play(-10.0 * number, number, number)
    (fifth,) = episodes.play(-50.0, 6, 7)
    assert (fifth.version, fifth.env_steps, fifth.updates, fifth.source) == (7, 700, 70, "training")
    assert fifth.returns == (-10.0, -20.0, -30.0, -40.0, -50.0)
    assert fifth.lengths == (2,) * 5
    assert (fifth.mean_return, fifth.std_return) == (-30.0, pytest.approx(14.142, abs=1e-3))
    (sixth,) = episodes.play(-60.0, 7, 8)
    assert (sixth.version, sixth.mean_return) == (8, -40.0)


def test_episodes_with_random_actions_do_not_count() -> None:
    episodes = Episodes()
    for _ in range(SCORED_EPISODES):
        assert not episodes.play(-1.0, None, None)
        assert not episodes.play(-1.0, None, 1)
    for _ in range(SCORED_EPISODES - 1):
        assert not episodes.play(-1.0, 1, 1)
    assert len(episodes.play(-1.0, 1, 1)) == 1


def test_a_return_that_is_no_number_spoils_one_evaluation() -> None:
    episodes = Episodes()
    for _ in range(SCORED_EPISODES):
        episodes.play(-1.0, 1, 1)
    (spoilt,) = episodes.play(math.nan, 1, 1)
    assert not spoilt.counts
    evaluations = [evaluation for _ in range(2) for evaluation in episodes.play(-1.0, 1, 1)]
    assert evaluations
    assert all(evaluation.counts for evaluation in evaluations)
