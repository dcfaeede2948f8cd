from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import gymnasium
import numpy as np
import pytest

from spreeze.channels.brief import Brief
from spreeze.channels.frames import Frame, FramesChannel
from spreeze.channels.weights import WeightsChannel
from spreeze.config import Config
from spreeze.policy.actor import random_actor
from spreeze.policy.file import Policy
from spreeze.views import viewer
from spreeze.views.rendering import Stage
from spreeze.views.viewer import BURST_S, MIN_EPISODE_S, Allowance, Playing, starts_over


class Clock:
    def __init__(self) -> None:
        self.now_s, self.used_s = 100.0, 7.0

    def allowance(self, share: float) -> Allowance:
        return Allowance(share, lambda: self.now_s, lambda: self.used_s)


def test_what_is_spent_has_to_be_earned() -> None:
    clock = Clock()
    allowance = clock.allowance(0.06)
    assert not allowance.is_spent()
    clock.used_s += 0.03  # of CPU time, for which half a second has to pass
    assert allowance.is_spent()
    clock.now_s += 0.49
    assert allowance.is_spent()
    clock.now_s += 0.02
    assert not allowance.is_spent()


def test_only_a_burst_is_saved_up() -> None:
    clock = Clock()
    allowance = clock.allowance(0.5)
    clock.now_s += 3600.0
    assert not allowance.is_spent()
    clock.used_s += BURST_S + 0.01
    assert allowance.is_spent()
    clock.now_s += 0.03
    assert not allowance.is_spent()


def test_in_the_long_run_the_share_is_kept() -> None:
    clock = Clock()
    allowance = clock.allowance(0.06)
    began_s, used_s = clock.now_s, clock.used_s
    for _ in range(10_000):
        clock.now_s += 0.01
        if not allowance.is_spent():
            clock.used_s += 0.02
    assert (clock.used_s - used_s) / (clock.now_s - began_s) < 0.0605
    assert (clock.used_s - used_s) / (clock.now_s - began_s) > 0.059


# --- which version plays ----------------------------------------------------------------------------------------

BOX = '{"kind": "box", "shape": [3]}'


class Endless(gymnasium.Env[Any, Any]):
    """Shows nothing but how it is acted in; each step takes as long as a picture is shown."""

    metadata: ClassVar[dict[str, Any]] = {"render_fps": 20}
    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))
    resets = 0

    def reset(self, **_: Any) -> Any:
        self.resets += 1
        return np.zeros(3, np.float32), {}

    def step(self, _: Any) -> Any:
        return np.zeros(3, np.float32), 1.0, False, False, {}

    def render(self) -> Any:
        return np.zeros((2, 2, 3), np.uint8)


class Showing:
    """A viewer in this process. What happens is a script, which goes on each time the viewer looks up."""

    def __init__(self, folder: Path, script: Callable[[Showing], Iterator[bool]]) -> None:
        weights, self.frames_channel = WeightsChannel(folder / "weights"), FramesChannel()
        self._writer, self._frames = weights.writer(), self.frames_channel.reader()
        self.env = Endless()
        self.frame: Frame | None = None
        channels = SimpleNamespace(weights=weights, frames=self.frames_channel)
        brief = SimpleNamespace(config=Config("x"), channels=channels)
        steps = script(self)

        def leaving() -> bool:
            self.frame = self._frames.newest() or self.frame
            return next(steps, True)

        viewer._show(cast(Brief, brief), Stage(self.env, "Endless"), leaving)
        self.frames_channel.close()
        weights.close()

    def publish(self, updates: int) -> None:
        """Publish a version that has made so many updates."""
        tensors = random_actor(3, 1, (4,), seed=0)
        bounds = {"action_low": np.full(1, -1, np.float32), "action_high": np.ones(1, np.float32)}
        about = {"policy": "gaussian", "observation": BOX, "action_shape": "[1]", "updates": str(updates)}
        self._writer.publish({**tensors, **bounds}, about)

    def until(self, version: int) -> Iterator[bool]:
        """Go on until a picture of a version is there."""
        for _ in range(1000):
            if self.frame is not None and self.frame.version == version:
                return
            yield False
        pytest.fail(f"there is still no picture of version {version}")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for newer versions at every picture, and call an episode long enough that has one."""
    monkeypatch.setattr(viewer, "FRESH_S", 0.0)
    monkeypatch.setattr(viewer, "MIN_EPISODE_S", 0.0)
    monkeypatch.setattr(viewer, "MIN_RESETS", 0)


@pytest.mark.usefixtures("at_once")
def test_a_newer_version_takes_over_within_an_episode(tmp_path: Path) -> None:
    def script(showing: Showing) -> Iterator[bool]:
        yield False  # there is no version yet
        showing.publish(updates=100)
        yield from showing.until(version=1)
        showing.publish(updates=149)
        yield from showing.until(version=2)
        assert showing.env.resets == 1
        assert showing.frame is not None
        assert showing.frame.published_at <= time.monotonic()

    Showing(tmp_path, script)


@pytest.mark.usefixtures("at_once")
def test_an_episode_starts_over_with_a_version_that_has_learned_much_more(tmp_path: Path) -> None:
    def script(showing: Showing) -> Iterator[bool]:
        showing.publish(updates=100)
        yield from showing.until(version=1)
        showing.publish(updates=150)
        yield from showing.until(version=2)
        assert showing.env.resets == 2
        assert showing.frame is not None
        assert showing.frame.episode_steps == 0

    Showing(tmp_path, script)


def test_an_episode_is_long_enough_to_show_something() -> None:
    before, now = (Playing(cast(Policy, None), 0.0, updates) for updates in (100, 1000))
    assert not starts_over(before, now, played_s=MIN_EPISODE_S - 0.1, reset_s=0.0)
    assert starts_over(before, now, played_s=MIN_EPISODE_S, reset_s=0.0)
    assert not starts_over(before, now, played_s=9.9, reset_s=2.0)  # a simulator that is slow to reset
    assert starts_over(before, now, played_s=10.0, reset_s=2.0)
    assert not starts_over(now, before, played_s=60.0, reset_s=0.0)  # a learner that was restarted


def test_steps_that_are_slower_than_real_time_each_have_their_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(viewer, "time", SimpleNamespace(monotonic=lambda: now))
    env = Endless()
    stage = Stage(env, "Slow")

    def leaving() -> bool:  # asked after each step, which has taken 0.2 s
        nonlocal now
        now += 0.2
        return False

    stage.begin(lambda _observation: np.zeros(1), 0)  # type: ignore[arg-type]
    viewer._catch_up(stage, 60.0, leaving)
    assert stage.episode_steps == 1
