"""Who closes the one environment of a run in real time, and when: in this process, with threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import gymnasium
import pytest

from spreeze.channels.metrics import MetricsChannel
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.backend import make_envs
from spreeze.sampling.robot import STEP_URGENCY, EndsBeforeReset, Robot

GUARD_S = 30.0


class Env(gymnasium.Env[Any, Any]):
    """Counts what it is asked for."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-1, 1, (1,))
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,))
        self.calls: list[str] = []
        self.is_closed, self.is_ready = threading.Event(), threading.Event()
        self.when_waiting: Callable[[], None] = self.is_ready.set

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        self.calls.append("reset")
        return self.observation_space.sample(), {}

    def close(self) -> None:
        self.calls.append("close")
        self.is_closed.set()

    def wait_until_ready(self) -> None:
        self.calls.append("wait")
        self.when_waiting()
        assert self.is_ready.wait(GUARD_S)


class Scene:
    """A robot, and what its sampler has been told."""

    def __init__(self) -> None:
        self.env, self.is_dismissed, self.has_left = Env(), threading.Event(), threading.Event()
        self.calls_before: dict[int, list[str]] = {}
        self.record = MetricsChannel().clock
        self.record["waits_for_person"] = 1  # as a sampler that was killed may leave it
        self.robot = Robot(
            self.record,
            self.is_dismissed.is_set,
            lambda: None,
            self.take_core,
            lambda _code: self.has_left.set(),
        )

    def take_core(self, urgency: int) -> None:
        self.calls_before[urgency] = self.env.calls[:]

    @property
    def waits(self) -> bool:
        return bool(self.record["waits_for_person"][0])


def test_an_environment_waits_for_a_person_before_each_reset() -> None:
    scene, seen = Scene(), []
    assert not scene.waits

    def person() -> None:
        seen.append(scene.waits)
        scene.env.is_ready.set()

    scene.env.when_waiting = person
    spec = EnvSpec("own", factory=lambda: scene.env, max_episode_steps=3)
    envs = make_envs(spec, 1, [1], watcher=scene.robot)
    assert scene.env.calls == ["wait", "reset"]
    envs.reset([2])
    assert scene.env.calls == ["wait", "reset"] * 2
    assert seen == [True, True]
    assert scene.calls_before[STEP_URGENCY] == []
    assert not scene.waits
    scene.robot.close()
    scene.robot.close()
    assert scene.env.calls.count("close") == 1


def test_an_environment_whose_person_does_not_come_is_closed_by_another_thread() -> None:
    scene = Scene()
    scene.robot.made(scene.env)
    scene.env.when_waiting = scene.is_dismissed.set
    main = threading.Thread(target=_raises, args=(EndsBeforeReset, lambda: scene.robot.before_reset(scene.env)))
    main.start()
    assert scene.env.is_closed.wait(GUARD_S)
    assert scene.has_left.wait(GUARD_S)  # nobody waits for a person any longer
    scene.env.is_ready.set()
    main.join()
    assert scene.env.calls == ["wait", "close"]


def test_there_is_no_reset_once_the_sampler_is_to_end() -> None:
    scene = Scene()
    scene.is_dismissed.set()
    _raises(EndsBeforeReset, lambda: scene.robot.before_reset(scene.env))
    assert scene.env.calls == []


def _raises(error: type[Exception], call: Callable[[], None]) -> None:
    with pytest.raises(error):
        call()


def test_a_sampler_that_comes_back_closes_the_environment_itself() -> None:
    scene = Scene()
    scene.robot.made(scene.env)
    scene.is_dismissed.set()
    scene.robot.close()
    assert scene.env.calls == ["close"]
    assert not scene.has_left.is_set()
