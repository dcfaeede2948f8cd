"""Which version is scored when a run ends: the last one, unless it was scored already or there is no time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spreeze.channels import Channels
from spreeze.channels.brief import Brief
from spreeze.channels.control import ControlChannel
from spreeze.channels.metrics import MetricsChannel
from spreeze.channels.spaces import ContinuousActions, Spaces
from spreeze.channels.weights import WeightsChannel, WeightsFile
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.evaluation.evaluator import Evaluator
from spreeze.evaluation.last import LastEvaluation

ONE = np.array([1], np.float32)


class Recorder(Evaluator):
    """Records what is to be scored."""

    def __init__(self) -> None:
        self.versions: list[int] = []

    def evaluate(self, weights: WeightsFile, stopping: Callable[[], bool], plays_all: bool = False) -> Any:
        assert plays_all
        assert not stopping()
        self.versions.append(weights.version)


@pytest.fixture
def brief(tmp_path: Path) -> Brief:
    channels = Channels((), WeightsChannel(tmp_path / "weights"), MetricsChannel(), ControlChannel())
    spaces = Spaces({"kind": "box", "shape": [1]}, ContinuousActions(-ONE, ONE, (1,)))
    return Brief(0, 0, Config("x"), EnvSpec("x"), spaces, tmp_path, 0.0, channels)


def publish(brief: Brief) -> None:
    brief.channels.weights.writer().publish({"weight": ONE}, {})


def order(brief: Brief, seconds: float = 60.0) -> None:
    brief.channels.control.order_last_evaluation(time.monotonic() + seconds)
    brief.channels.control.stop()


def test_the_version_that_was_scored_is_not_scored_again(brief: Brief) -> None:
    reader, last, evaluator = brief.channels.weights.reader(), LastEvaluation(brief), Recorder()
    publish(brief)
    newest = reader.newest()
    assert newest is not None
    last.begins(newest)
    last.has_ended()
    order(brief)
    brief.channels.control.announce_last_version()
    last.make(evaluator, reader)
    assert evaluator.versions == []


def test_one_that_was_under_way_when_a_newer_one_came_is_left_for_it(brief: Brief) -> None:
    reader, last, evaluator = brief.channels.weights.reader(), LastEvaluation(brief), Recorder()
    publish(brief)
    newest = reader.newest()
    assert newest is not None
    last.begins(newest)
    assert not last.is_futile()
    order(brief)
    assert not last.is_futile()  # it may be the last
    publish(brief)
    assert last.is_futile()
    brief.channels.control.announce_last_version()
    last.make(evaluator, reader)
    assert evaluator.versions == [2]


def test_it_waits_for_the_last_version(brief: Brief) -> None:
    reader, last, evaluator = brief.channels.weights.reader(), LastEvaluation(brief), Recorder()
    publish(brief)
    order(brief)
    waiting = threading.Thread(target=last.make, args=(evaluator, reader))
    waiting.start()
    publish(brief)
    brief.channels.control.announce_last_version()
    waiting.join(60)
    assert evaluator.versions == [2]


@pytest.mark.parametrize("seconds", [None, -1.0])
def test_without_an_order_or_time_nothing_is_scored(brief: Brief, seconds: float | None) -> None:
    reader, last, evaluator = brief.channels.weights.reader(), LastEvaluation(brief), Recorder()
    publish(brief)
    if seconds is None:
        brief.channels.control.stop()
    else:
        order(brief, seconds)
    brief.channels.control.announce_last_version()
    assert last.is_futile()
    last.make(evaluator, reader)
    assert evaluator.versions == []
