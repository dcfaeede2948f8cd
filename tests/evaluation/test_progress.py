"""How far an evaluation is: reported if it takes long, a few times per second at most."""

from __future__ import annotations

import math
from typing import Any

import pytest

from spreeze.channels.control import MessageList
from spreeze.evaluation import progress
from spreeze.evaluation.progress import Progress

AT_ONCE, NEVER = 0.0, 1e9


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what is sent after each step of an evaluation of four episodes, each of which ends one."""

    def after_each(returns: list[float], quick_s: float = AT_ONCE, interval_s: float = AT_ONCE) -> list[Any]:
        monkeypatch.setattr(progress, "QUICK_S", quick_s)
        monkeypatch.setattr(progress, "INTERVAL_S", interval_s)
        messages = MessageList()
        reports = Progress(messages, 4)
        reports.begin(7)
        found = []
        for each in (None, *returns):
            if each is not None:
                reports.ended(each)
            reports.turn()
            reports.turn()
            found.append([(message["played"], message["mean_return"]) for message in messages.take()])
        return found

    return after_each


def test_each_episode_is_reported_once(sent: Any) -> None:
    assert sent([3.0, 5.0]) == [[(0, None)], [(1, 3.0)], [(2, 4.0)]]


def test_nothing_is_reported_of_a_quick_evaluation(sent: Any) -> None:
    assert sent([3.0, 5.0], quick_s=NEVER) == [[], [], []]


def test_reports_keep_their_distance(sent: Any) -> None:
    assert sent([3.0, 5.0], interval_s=NEVER) == [[(0, None)], [], []]


@pytest.mark.parametrize("unusable", [math.nan, math.inf, 1e300])
def test_there_is_no_mean_with_a_return_that_cannot_be_used(sent: Any, unusable: float) -> None:
    assert sent([unusable, 5.0]) == [[(0, None)], [(1, None)], [(2, None)]]


def test_the_next_evaluation_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUICK_S", AT_ONCE)
    messages = MessageList()
    reports = Progress(messages, 4)
    reports.begin(7)
    reports.ended(3.0)
    reports.begin(8)
    reports.turn()
    said = {"kind": "evaluating", "version": 8, "played": 0, "episodes": 4, "mean_return": None}
    assert messages.take() == [said]
