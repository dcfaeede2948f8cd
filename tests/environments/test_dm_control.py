"""dm_control's tasks play as they are, under Gymnasium's interface."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from spreeze.config.env_spec import EnvSpec
from spreeze.environments.batch import EnvBatch
from spreeze.environments.make import make_env
from spreeze.evaluation.scores import score
from spreeze.policy.file import load_policy

if TYPE_CHECKING:
    from conftest import Spreeze

pytestmark = pytest.mark.skipif(importlib.util.find_spec("dm_control") is None, reason="no wheel for this Python")

WALK = "dm_control/walker-walk-v0"
PARTS = ("height", "orientations", "velocity")  # as a Dict space orders them


def vector(timestep: Any) -> Any:
    return np.concatenate([np.ravel(timestep.observation[part]) for part in PARTS]).astype(np.float32)


def test_steps_are_those_of_the_library() -> None:
    from dm_control import suite

    library = suite.load("walker", "walk", task_kwargs={"random": 5})
    envs = EnvBatch(EnvSpec(WALK), 1, [5])
    np.testing.assert_array_equal(envs.observations[0], vector(library.reset()))
    for actions in np.random.default_rng(0).uniform(-1, 1, (60, 1, 6)).astype(np.float32):
        assert envs.step(actions) == []
        timestep = library.step(actions[0])
        np.testing.assert_array_equal(envs.next_observations[0], vector(timestep))
        assert envs.rewards[0] == np.float32(timestep.reward)
    envs.close()


def test_the_end_of_its_time_is_no_termination() -> None:
    # 0.25 s of 0.025 s each.
    envs = EnvBatch(EnvSpec(WALK, kwargs={"task_kwargs": {"time_limit": 0.25}}), 2, [0, 1])
    zeros = np.zeros((2, 6), np.float32)
    lengths = [[length for _, _, length in envs.step(zeros)] for _ in range(10)]
    assert lengths == [[]] * 9 + [[10, 10]]
    assert not envs.terminated.any()
    envs.close()


def test_seeds_decide_where_episodes_begin() -> None:
    one, same, other = (EnvBatch(EnvSpec(WALK), 1, [seed]) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.observations, same.observations)
    assert not np.array_equal(one.observations, other.observations)


def test_training_and_evaluation_through_the_command(spreeze: Spreeze) -> None:
    limit = {"task_kwargs": {"time_limit": 0.5}}
    finished = spreeze.train(WALK, env_module=None, env_kwargs=limit, target_return=-1, max_seconds=90)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""

    evaluated = spreeze("evaluate", "run", "--episodes", "2", "--seed", "3", "--json", "scores.json")
    assert evaluated.returncode == 0, evaluated.stderr
    assert evaluated.stderr == ""
    assert evaluated.stdout.startswith(WALK)
    scores = json.loads((spreeze.folder / "scores.json").read_text())
    seeds = np.random.default_rng(3).integers(2**31, size=2).tolist()
    envs = EnvBatch(EnvSpec(WALK, kwargs=limit), 2, seeds)
    again = score(load_policy(spreeze.run_dir).actor(2), envs, seeds)
    assert again is not None
    assert scores["returns"] == pytest.approx(again.returns)
    assert scores["lengths"] == [20, 20]


def test_near_names_of_a_task_that_is_not_there() -> None:
    from spreeze.errors import EnvironmentSetupError

    with pytest.raises(EnvironmentSetupError, match="dm_control/walker-walk-v0"):
        make_env(EnvSpec("dm_control/walker-wlak-v0"))


@pytest.mark.parametrize("hidden", ["dm_control", "shimmy"])
def test_missing_package_is_told_with_the_line_that_installs_it(hidden: str, spreeze: Spreeze) -> None:
    environment = spreeze.without(hidden)
    before = sorted(spreeze.folder.iterdir())
    finished = spreeze("train", WALK, "--run-dir", "run", environment=environment)
    assert finished.returncode == 2
    assert finished.stdout == ""
    assert finished.stderr.count("\n") == 1
    assert 'needs dm_control, which is not installed: pip install "spreeze[dmc]"' in finished.stderr
    assert sorted(spreeze.folder.iterdir()) == before
