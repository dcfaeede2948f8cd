"""PyBullet's environments play as they are, under Gymnasium's interface, and without `gym`."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest

import spreeze as package
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.batch import EnvBatch
from spreeze.environments.make import make_env
from spreeze.environments.optional_packages import register_bullet
from spreeze.errors import EnvironmentSetupError

if TYPE_CHECKING:
    from conftest import Spreeze

pytestmark = pytest.mark.skipif(importlib.util.find_spec("pybullet") is None, reason="no wheel for this Python")

SWINGUP = "InvertedPendulumSwingupBulletEnv-v0"


@pytest.fixture(autouse=True)
def _flushed() -> Iterator[None]:
    """Leave nothing of what the library prints in C's buffer, for tests after these that look at their output."""
    yield
    ctypes.CDLL(None).fflush(None)


def raw(env: gymnasium.Env[Any, Any]) -> Any:
    """One more environment of the library's own class, with the old interface."""
    return type(env.unwrapped._env)()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "env_id",
    [
        SWINGUP,
        "HopperBulletEnv-v0",
        "Walker2DBulletEnv-v0",
        "ReacherBulletEnv-v0",
        "HumanoidFlagrunHarderBulletEnv-v0",
    ],
)
def test_steps_are_those_of_the_library(env_id: str) -> None:
    env = make_env(EnvSpec(env_id))
    library = raw(env)
    library.seed(7)
    actions = np.random.default_rng(0).uniform(-1, 1, (40, *env.action_space.shape)).astype(np.float32)  # type: ignore[misc]
    observation, _ = env.reset(seed=7)
    np.testing.assert_array_equal(observation, library.reset())
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        wanted, wanted_reward, done, _ = library.step(action)
        # Two engines of one process differ in the last digits: the order of their contacts is one of addresses.
        np.testing.assert_allclose(observation, wanted, atol=1e-3)
        assert reward == pytest.approx(wanted_reward, abs=1e-2)
        assert (terminated, truncated) == (done, False)
        if done:
            np.testing.assert_allclose(env.reset()[0], library.reset(), atol=1e-3)
    env.close()
    library.close()


def test_episodes_end_as_registered() -> None:
    envs = EnvBatch(EnvSpec(SWINGUP), 1, [0])
    lengths = [length for _ in range(1000) for _, _, length in envs.step(np.zeros((1, 1), np.float32))]
    assert lengths == [1000]
    assert not envs.terminated[0]  # out of time
    envs = EnvBatch(EnvSpec("HopperBulletEnv-v0"), 1, [0])
    ended: list[tuple[int, float, int]] = []
    while not ended:
        ended = envs.step(np.ones((1, 3), np.float32))
    assert ended[0][2] < 1000
    assert envs.terminated[0]  # fell
    envs.close()


def test_environments_of_a_process_do_not_move_each_other() -> None:
    together = EnvBatch(EnvSpec("HopperBulletEnv-v0"), 3, [1, 2, 3])
    alone = EnvBatch(EnvSpec("HopperBulletEnv-v0"), 1, [2])
    np.testing.assert_array_equal(together.observations[1], alone.observations[0])
    assert not np.array_equal(together.observations[0], together.observations[1])
    for actions in np.random.default_rng(0).uniform(-1, 1, (40, 3, 3)).astype(np.float32):
        together.step(actions)
        alone.step(actions[1:2])
        np.testing.assert_allclose(together.next_observations[1], alone.next_observations[0], atol=1e-3)
        assert together.rewards[1] == pytest.approx(alone.rewards[0], abs=1e-2)
    together.close()
    alone.close()


@pytest.mark.parametrize(
    "spec",
    [
        EnvSpec("pybullet_envs:AntBulletEnv-v0"),
        EnvSpec("AntBulletEnv-v0", modules=("pybullet_envs",)),
        EnvSpec("AntBulletEnv-v0", max_episode_steps=5),
    ],
    ids=["module-in-the-id", "env-module", "limited"],
)
def test_ids_are_found_however_they_are_named(spec: EnvSpec) -> None:
    env = make_env(spec)
    assert env.observation_space.shape == (28,)
    assert env.spec is not None
    assert env.spec.max_episode_steps == (spec.max_episode_steps or 1000)


@pytest.mark.parametrize("env_id", ["KukaBulletEnv-v0", "RacecarZedBulletEnv-v0"])
def test_what_cannot_play_several_at_once_or_without_a_screen_is_not_there(env_id: str) -> None:
    with pytest.raises(EnvironmentSetupError, match=f"there is no environment '{env_id}'"):
        make_env(EnvSpec(env_id))


def test_imports_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    gym = ModuleType("gym")
    monkeypatch.setitem(sys.modules, "gym", gym)
    before = list(sys.path)
    register_bullet("test")
    make_env(EnvSpec("PusherBulletEnv-v0")).close()
    assert sys.modules["gym"] is gym
    assert "gym.envs" not in sys.modules
    assert sys.path == before


def test_pictures() -> None:
    first = make_env(EnvSpec(SWINGUP))
    first.reset()
    env = make_env(EnvSpec("HopperBulletEnv-v0", kwargs={"render_mode": "rgb_array"}))
    env.reset(seed=0)
    first.close()  # the library asks the first engine of a process where a window's camera is
    picture: Any = env.render()
    assert picture.shape == (240, 320, 3)
    assert picture.dtype == np.uint8
    assert picture.std() > 1
    env.close()


def test_training_and_evaluation_through_the_command(spreeze: Spreeze, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # it would keep C libraries from printing at the very end
    finished = spreeze.train(SWINGUP, env_module=None, max_episode_steps=50, target_return=-1000, max_seconds=90)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    assert not re.search("build time|argv|argc", finished.stdout)
    assert "build time" in (spreeze.run_dir / "logs" / "sampler-0.log").read_text()

    evaluated = spreeze("evaluate", "run", "--episodes", "2", "--seed", "3", "--json", "scores.json")
    assert evaluated.returncode == 0, evaluated.stderr
    assert evaluated.stderr == ""
    lines = evaluated.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [f"{SWINGUP},", "return", "lowest"]  # and nothing of the library's
    scores = json.loads((spreeze.folder / "scores.json").read_text())

    policy = package.load_policy(spreeze.run_dir)
    library = raw(make_env(EnvSpec(SWINGUP)))
    for seed, wanted in zip(np.random.default_rng(3).integers(2**31, size=2), scores["returns"], strict=True):
        library.seed(int(seed))
        observation, total = library.reset(), 0.0
        for _ in range(50):
            observation, reward, _, _ = library.step(policy(observation))
            total += reward
        assert total == pytest.approx(wanted, rel=1e-4)


def test_missing_package_is_told_with_the_line_that_installs_it(spreeze: Spreeze) -> None:
    environment = spreeze.without("pybullet")
    before = sorted(spreeze.folder.iterdir())
    finished = spreeze("train", "HopperBulletEnv-v0", "--run-dir", "run", environment=environment)
    assert finished.returncode == 2
    assert finished.stdout == ""
    assert finished.stderr.count("\n") == 1
    assert 'needs PyBullet, which is not installed: pip install "spreeze[bullet]"' in finished.stderr
    assert sorted(spreeze.folder.iterdir()) == before
