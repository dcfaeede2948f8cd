"""How many episodes an evaluator plays: few of a version that is clearly worse, all where a word depends on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from spreeze.channels import Channels
from spreeze.channels.brief import Brief
from spreeze.channels.control import ControlChannel, MessageList
from spreeze.channels.metrics import MetricsChannel
from spreeze.channels.spaces import ContinuousActions, Spaces
from spreeze.channels.weights import WeightsChannel, WeightsFile
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.evaluation import progress
from spreeze.evaluation.evaluator import Evaluator
from spreeze.policy.actor import random_actor

EPISODES, FIRST = 10, 2
ONE = np.array([1], np.float32)


class Pays(gymnasium.Env[Any, Any]):
    """Rewards an action with its own value, and a little luck."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), float(action[0]) + 0.01 * self.np_random.random(), True, False, {}


def version(number: int, action: float) -> WeightsFile:
    """Return a version that always takes about this action."""
    tensors = dict(random_actor(1, 1, (4,), seed=0))
    tensors["actor.1.weight"] = np.zeros_like(tensors["actor.1.weight"])
    tensors["actor.1.bias"] = np.array([np.arctanh(action), 0], np.float32)
    about = {"policy": "gaussian", "env_steps": "1", "updates": str(number)}
    return WeightsFile({**tensors, "action_low": -ONE, "action_high": ONE}, about, number, 0.0)


Make = Callable[..., Evaluator]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def evaluator(has_threads: bool = False, messages: MessageList | None = None, **settings: Any) -> Evaluator:
        channels = Channels((), WeightsChannel(tmp_path / "weights"), MetricsChannel(), ControlChannel())
        spaces = Spaces({"kind": "box", "shape": [1]}, ContinuousActions(-ONE, ONE, (1,)))
        config = Config("Pays").replace(eval_episodes=EPISODES, **settings)
        env = EnvSpec("Pays", factory=Pays, has_threads=has_threads)
        return Evaluator(
            Brief(0, 0, config, env, spaces, tmp_path, 0.0, channels), MessageList() if messages is None else messages
        )

    return evaluator


def played(evaluator: Evaluator, weights: WeightsFile, **how: Any) -> int:
    evaluation = evaluator.evaluate(weights, bool, **how)
    assert evaluation is not None
    assert len(evaluation.returns) == len(evaluation.lengths)
    assert evaluation.mean_return == pytest.approx(sum(evaluation.returns) / len(evaluation.returns))
    return len(evaluation.returns)


def test_few_episodes_of_what_is_clearly_worse_and_all_of_what_may_be_the_best(make: Make) -> None:
    evaluator = make()
    assert played(evaluator, version(1, 0.0)) == EPISODES  # nothing is known yet
    assert played(evaluator, version(2, -0.5)) == FIRST
    assert played(evaluator, version(3, 0.5)) == EPISODES
    assert played(evaluator, version(4, 0.0)) == FIRST
    assert played(evaluator, version(5, 0.0), plays_all=True) == EPISODES
    evaluator.close()
    # Another evaluator of the same run goes on from the best.
    assert played(make(), version(6, 0.0)) == FIRST


def test_more_episodes_of_what_is_a_little_worse(make: Make) -> None:
    evaluator = make()
    assert played(evaluator, version(1, 0.0)) == EPISODES
    # The luck of an episode has a standard deviation of 0.003, that of two of 0.002: known from the ten before.
    assert [played(evaluator, version(i, -0.01)) for i in range(2, 6)] == [FIRST] * 4
    assert played(evaluator, version(6, -0.001)) > FIRST
    evaluator.close()


def test_all_episodes_of_what_may_be_at_the_target(make: Make) -> None:
    evaluator = make(target_return=0.25)
    assert played(evaluator, version(1, 0.5)) == EPISODES
    assert played(evaluator, version(2, 0.3)) == EPISODES
    assert played(evaluator, version(3, 0.0)) == FIRST
    evaluator.close()


@pytest.mark.parametrize("how", [{"serial": True}, {"has_threads": True}], ids=["serial", "threads"])
def test_all_episodes_in_a_serial_run_and_in_threads(make: Make, how: dict[str, bool]) -> None:
    evaluator = make(**how)
    assert [played(evaluator, version(i, 0.5 - i / 4)) for i in range(3)] == [EPISODES] * 3
    evaluator.close()


def test_episodes_are_reported_as_they_end(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUICK_S", 0.0)
    monkeypatch.setattr(progress, "INTERVAL_S", 0.0)
    messages = MessageList()
    evaluator = make(messages=messages)
    assert played(evaluator, version(7, 0.5)) == EPISODES
    *reports, complete = messages.take()
    assert complete["kind"] == "evaluation"
    assert {(each["kind"], each["version"], each["episodes"]) for each in reports} == {("evaluating", 7, EPISODES)}
    # Each block of these short episodes ends in one step.
    assert [each["played"] for each in reports] == [0, 2, 4]
    assert reports[1]["mean_return"] == pytest.approx(sum(complete["returns"][:2]) / 2)
    evaluator.close()


def test_the_same_seeds_whether_few_or_all_are_played(make: Make) -> None:
    evaluator = make()
    whole = evaluator.evaluate(version(1, 0.5), bool)
    evaluator.evaluations = 0
    few = evaluator.evaluate(version(1, 0.0), bool)
    assert whole is not None
    assert few is not None
    luck = [each - whole.mean_return for each in whole.returns[:FIRST]]
    assert [each - few.mean_return for each in few.returns] == pytest.approx(
        [each - sum(luck) / FIRST for each in luck], abs=1e-6
    )
    evaluator.close()
