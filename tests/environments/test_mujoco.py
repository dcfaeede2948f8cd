"""MuJoCo robots that are stepped together give the rows of Gymnasium, bit by bit; others are refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest

from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.config.groups import Backend
from spreeze.environments import mujoco
from spreeze.environments.backend import choose_backend, make_envs
from spreeze.environments.batch import EnvBatch
from spreeze.environments.facts import find_spaces
from spreeze.environments.make import spec_for_evaluation, spec_for_evaluator
from spreeze.errors import EnvironmentSetupError

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Spreeze

SEEDS = [11, 12, 13]

# What each of them depends on, away from its defaults.
OTHER: dict[str, dict[str, Any]] = {
    "HalfCheetah-v5": {"forward_reward_weight": 2.0, "ctrl_cost_weight": 0.3, "frame_skip": 3},
    "Hopper-v5": {"healthy_state_range": (-4.0, 4.0), "healthy_z_range": (0.9, 2.0), "healthy_angle_range": (-1, 1)},
    "Walker2d-v5": {"healthy_reward": 0.5, "healthy_z_range": (1.1, 1.4), "healthy_angle_range": (-0.3, 0.3)},
    "Ant-v5": {
        **{"main_body": "aux_1", "contact_cost_weight": 0.1, "contact_force_range": (-0.5, 2.0)},
        **{"healthy_z_range": (0.4, 0.9), "include_cfrc_ext_in_observation": False},
    },
    "Humanoid-v5": {
        **{"contact_cost_weight": 1e-3, "contact_cost_range": (-1.0, 2.0), "healthy_z_range": (1.2, 1.6)},
        **{"include_cvel_in_observation": False, "include_qfrc_actuator_in_observation": False},
    },
}
GOES_ON = {"terminate_when_unhealthy": False}


def compare(name: str, steps: int, **more: Any) -> tuple[int, int]:
    """Play the same actions in both and compare all rows; return how many episodes ended, and how many fell."""
    together, alone = (make_envs(EnvSpec(name, backend=kind, **more), 3, SEEDS) for kind in ("mujoco", "gymnasium"))
    rng, ended, fell = np.random.default_rng(0), 0, 0
    for _ in range(steps):
        actions = rng.uniform(-1, 1, (3, together.spaces.action_size)).astype(np.float32)
        np.testing.assert_array_equal(together.observations, alone.observations)
        finished = together.step(actions)
        assert finished == alone.step(actions)
        for what in ("rewards", "terminated", "next_observations"):
            np.testing.assert_array_equal(getattr(together, what), getattr(alone, what), what)
        ended, fell = ended + len(finished), fell + int(together.terminated.sum())
    together.close()
    alone.close()
    return ended, fell


@pytest.mark.parametrize("name", OTHER)
def test_rows_are_those_of_gymnasium(name: str) -> None:
    ended, fell = compare(name, 150)
    assert ended == fell
    assert (fell > 0) == (name != "HalfCheetah-v5")


@pytest.mark.parametrize("name", OTHER)
def test_rows_follow_the_arguments_of_the_environment(name: str) -> None:
    shown = {"exclude_current_positions_from_observation": False}
    compare(name, 60, kwargs={**OTHER[name], **shown})
    if name != "HalfCheetah-v5":
        assert compare(name, 60, kwargs={**OTHER[name], **GOES_ON}) == (0, 0)


@pytest.mark.parametrize("name", OTHER)
def test_episodes_end_at_their_limit(name: str) -> None:
    ended, fell = compare(name, 16, max_episode_steps=5)
    assert ended > fell


def test_a_reset_of_all_begins_anew() -> None:
    envs, other = (EnvBatch(EnvSpec("Hopper-v5", backend="mujoco"), 3, SEEDS) for _ in range(2))
    actions = np.full((3, 3), 0.3, np.float32)
    for _ in range(5):
        envs.step(actions)
    envs.reset(SEEDS)
    for each in (envs, other):
        each.step(actions)
    np.testing.assert_array_equal(envs.rewards, other.rewards)
    np.testing.assert_array_equal(envs.next_observations, other.next_observations)


@pytest.mark.parametrize("name", OTHER)
def test_a_batch_shrinks_and_rows_of_the_others_stay(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kwargs = {} if name == "HalfCheetah-v5" else GOES_ON
    batch, alone = (EnvBatch(EnvSpec(name, backend="mujoco", kwargs=kwargs), n, SEEDS[:n]) for n in (3, 1))
    assert batch._together is not None
    stepped: list[Any] = []
    mj_step = batch._together._mj_step
    monkeypatch.setattr(batch._together, "_mj_step", lambda *of: (stepped.append(of[1]), mj_step(*of)))
    actions = np.random.default_rng(0).uniform(-1, 1, (20, 3, batch.spaces.action_size)).astype(np.float32)
    expected = []
    for each in actions:
        alone.step(each[:1])
        expected.append((alone.next_observations.tobytes(), alone.rewards.tobytes(), alone.terminated.tobytes()))

    for _ in range(2):  # a reset brings those back that rest
        batch.reset(SEEDS)
        stepped.clear()
        for i, each in enumerate(actions):
            if i in (5, 10):
                batch.rest(i // 5)
            assert batch.step(each) == []
            row = slice(0, 1)
            found = [of[row].tobytes() for of in (batch.next_observations, batch.rewards, batch.terminated)]
            assert tuple(found) == expected[i]
        assert len(stepped) == 5 * 3 + 5 * 2 + 10
        assert not batch.rewards[1:].any()
    batch.close()
    alone.close()


def test_who_rests_does_not_fall() -> None:
    # It is never healthy, so that every step would end an episode.
    envs = EnvBatch(EnvSpec("Hopper-v5", backend="mujoco", kwargs={"healthy_z_range": (5.0, 6.0)}), 2, SEEDS[:2])
    actions = np.zeros((2, 3), np.float32)
    assert [env for env, _, _ in envs.step(actions)] == [0, 1]
    envs.rest(1)
    assert [env for env, _, _ in envs.step(actions)] == [0]
    envs.close()


@pytest.mark.parametrize("name", OTHER)
def test_robots_are_stepped_together_unless_asked_otherwise(name: str) -> None:
    spec = EnvSpec.of(Config(name))
    assert choose_backend(spec).value == "mujoco"
    assert choose_backend(spec.with_backend("gymnasium")).value == "gymnasium"
    assert spec_for_evaluation(spec).backend == "gymnasium"  # `spreeze evaluate` plays there


@pytest.mark.parametrize(
    ("chosen", "used"), [("mujoco", "mujoco"), ("gymnasium", "gymnasium"), ("envpool", "gymnasium")]
)
def test_the_evaluator_steps_robots_together_if_samplers_do(chosen: Backend, used: str) -> None:
    assert spec_for_evaluator(EnvSpec("Hopper-v5", backend=chosen)).backend == used


def wrapped() -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.ClipReward(gymnasium.make("Hopper-v5"), -1, 1)


@pytest.mark.parametrize(
    "spec",
    [EnvSpec("Pendulum-v1"), EnvSpec("Swimmer-v5"), EnvSpec("Hopper-v4"), EnvSpec("wrapped()", factory=wrapped)],
    ids=["no MuJoCo", "another robot", "another version", "a wrapper"],
)
def test_others_are_stepped_by_themselves_or_refused(spec: EnvSpec) -> None:
    chosen = choose_backend(spec.with_backend("auto"))
    assert (chosen.setting, chosen.value) == ("backend", "gymnasium")
    with pytest.raises(EnvironmentSetupError, match="--backend mujoco is for Gymnasium's HalfCheetah-v5, ") as raised:
        choose_backend(spec.with_backend("mujoco"))
    assert spec.name in str(raised.value)


@pytest.mark.parametrize(("part", "said"), [("_costs", "rewards"), ("_observed", "next observations")])
def test_a_gymnasium_with_other_rules_is_stepped_by_itself(
    part: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = getattr(mujoco.Robots, part)

    def of_another_version(*words: Any) -> Any:
        found = rule(*words)
        return [found[0] + 0.01, found[1]] if isinstance(found, list) else found + 0.01

    monkeypatch.setattr(mujoco.Robots, part, of_another_version)
    words = f"HalfCheetah-v5 has other {said} in this version"
    chosen = choose_backend(EnvSpec("HalfCheetah-v5", backend="auto"))
    assert chosen.value == "gymnasium"
    assert words in chosen.reason
    with pytest.raises(EnvironmentSetupError, match=words):
        choose_backend(EnvSpec("HalfCheetah-v5", backend="mujoco"))


@pytest.mark.parametrize("part", ["_forward_positions", "_observed"])
def test_a_gymnasium_with_other_names_is_stepped_by_itself(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def of_another_version(robots: Any) -> Any:
        return robots.now["qpos"] if part == "_observed" else robots._env._renamed

    monkeypatch.setattr(mujoco.Robots, part, of_another_version)
    chosen = choose_backend(EnvSpec("HalfCheetah-v5", backend="auto"))
    assert chosen.value == "gymnasium"
    assert "HalfCheetah-v5 has other rules (" in chosen.reason
    with pytest.raises(EnvironmentSetupError, match="leave it out"):
        choose_backend(EnvSpec("HalfCheetah-v5", backend="mujoco"))


def test_arguments_that_the_robot_does_not_take_are_told_as_ever(tmp_path: Path) -> None:
    spec = EnvSpec("HalfCheetah-v5", kwargs={"gravitas": 1}, backend="auto")
    assert choose_backend(spec).value == "gymnasium"
    with pytest.raises(EnvironmentSetupError, match="gravitas"):
        find_spaces(spec, tmp_path / "log")


@pytest.mark.parametrize(("asked", "used"), [(None, "mujoco"), ("gymnasium", "gymnasium")])
def test_training_through_the_command(spreeze: Spreeze, asked: str | None, used: str) -> None:
    backend = {} if asked is None else {"backend": asked}
    settings = {"env_module": None, "target_return": -3000, "max_seconds": 90, **backend}
    finished = spreeze.train("HalfCheetah-v5", **settings)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    assert spreeze.read("config.json")["backend"] == used
    chosen = [one for one in spreeze.journal("events") if one.get("setting") == "backend"]
    assert [one["value"] for one in chosen] == ([used] if asked is None else [])


def test_a_resumed_run_chooses_anew(spreeze: Spreeze) -> None:
    settings = {"env_module": None, "max_env_steps": 2000, "max_seconds": 90, "checkpoint_interval_s": 0.2}
    assert spreeze.train("HalfCheetah-v5", **settings).returncode == 0
    config = spreeze.read("config.json")
    assert config["backend"] == "mujoco"
    # As if it had been written where robots cannot be stepped together.
    (spreeze.run_dir / "config.json").write_text(json.dumps({**config, "backend": "gymnasium"}))
    resumed = spreeze("resume", "run", "--max-env-steps", "3000")
    assert resumed.returncode == 0, resumed.stderr
    assert spreeze.read("config.json")["backend"] == "mujoco"


def test_another_environment_is_one_line_and_leaves_nothing(spreeze: Spreeze) -> None:
    finished = spreeze("train", "Pendulum-v1", "--backend", "mujoco", "--run-dir", "run")
    assert finished.returncode == 2
    assert finished.stderr.count("\n") == 1
    assert "not for Pendulum-v1: leave it out" in finished.stderr
    assert not spreeze.run_dir.exists()
