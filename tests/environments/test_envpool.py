"""EnvPool's environments give the rows that Gymnasium's would: no row crosses episodes, ends are told apart."""

from __future__ import annotations

import importlib.util
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.backend import check_exists, make_envs
from spreeze.environments.batch import EnvBatch
from spreeze.environments.envpool import EnvPoolBatch
from spreeze.environments.facts import find_spaces
from spreeze.environments.make import spec_for_evaluation
from spreeze.errors import EnvironmentSetupError
from spreeze.evaluation.scores import score
from spreeze.policy.file import load_policy

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Spreeze

pytestmark = pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="no wheel for this Python")

Row = tuple[NDArray[Any], NDArray[Any], float, NDArray[Any], bool]


def spec_of(name: str, **more: Any) -> EnvSpec:
    return EnvSpec(name, backend="envpool", **more)


def rows_of_batch(envs: EnvPoolBatch, actions: NDArray[np.float32]) -> list[list[Row]]:
    """Play (steps, envs, action_size) actions; return the rows that a sampler would write, by environment."""
    rows: list[list[Row]] = [[] for _ in range(len(envs))]
    for step_actions in actions:
        before = envs.observations.copy()
        envs.step(step_actions)
        for i in range(len(envs)):
            rows[i].append(
                (
                    before[i],
                    step_actions[i],
                    float(envs.rewards[i]),
                    envs.next_observations[i].copy(),
                    bool(envs.terminated[i]),
                )
            )
    return rows


def rows_of_library(
    name: str, seeds: list[int], actions: NDArray[np.float32], limit: int | None = None
) -> list[list[Row]]:
    """Play the same with the library alone, and leave out the steps with which it begins episodes."""
    import envpool

    limits = {} if limit is None else {"max_episode_steps": limit}
    pool = envpool.make_gymnasium(name, num_envs=len(seeds), env_seed=seeds, num_threads=1, **limits)
    count, dtype = len(seeds), pool.action_space.dtype
    observations, _ = pool.reset()
    before = observations.astype(np.float32)
    rows: list[list[Row]] = [[] for _ in range(count)]
    over = np.zeros(count, np.bool_)
    while min(map(len, rows)) < len(actions):
        chosen = np.array([actions[min(len(rows[i]), len(actions) - 1), i] for i in range(count)])
        observations, rewards, terminated, truncated, _ = pool.step(chosen.astype(dtype))
        after = observations.astype(np.float32)
        for i in range(count):
            if not over[i]:
                rows[i].append((before[i], chosen[i], float(rewards[i]), after[i], bool(terminated[i])))
        before, over = after, terminated | truncated
    return [env_rows[: len(actions)] for env_rows in rows]


@pytest.mark.parametrize(("name", "action_size", "limit"), [("Hopper-v5", 3, None), ("Hopper-v5", 3, 7)])
def test_rows_are_those_of_the_library_without_its_steps_of_reset(
    name: str, action_size: int, limit: int | None
) -> None:
    seeds = [11, 12, 13]
    actions = np.random.default_rng(0).uniform(-1, 1, (120, 3, action_size)).astype(np.float32)
    mine = rows_of_batch(EnvPoolBatch(spec_of(name, max_episode_steps=limit), 3, seeds), actions)
    for own, wanted in zip(mine, rows_of_library(name, seeds, actions, limit), strict=True):
        assert any(row[4] for row in wanted) or limit is not None  # some episodes fell
        for (a, b, c, d, e), (f, g, h, i, j) in zip(own, wanted, strict=True):
            np.testing.assert_array_equal(a, f)
            np.testing.assert_array_equal(b, g)
            np.testing.assert_array_equal(d, i)
            assert c == pytest.approx(h)
            assert e == j


def test_every_row_is_a_step_that_gymnasium_would_make() -> None:
    inner: Any = gymnasium.make("Pendulum-v1").unwrapped
    inner.reset(seed=0)
    envs = EnvPoolBatch(spec_of("Pendulum-v1", max_episode_steps=5), 4, [1, 2, 3, 4])
    actions = np.random.default_rng(0).uniform(-1, 1, (23, 4, 1)).astype(np.float32)
    for rows in rows_of_batch(envs, actions):
        for observation, action, reward, next_observation, terminated in rows:
            inner.state = np.array([np.arctan2(observation[1], observation[0]), observation[2]])
            wanted, wanted_reward, _, _, _ = inner.step(2.0 * action)
            np.testing.assert_allclose(next_observation, wanted, atol=1e-4)
            assert reward == pytest.approx(wanted_reward, abs=1e-3)
            assert not terminated
        # Each row goes on where the one before it ended, but for the first of an episode.
        goes_on = [np.array_equal(a[3], b[0]) for a, b in pairwise(rows)]
        assert goes_on == [step % 5 != 0 for step in range(1, 23)]


def test_returns_and_lengths_are_those_of_each_episode() -> None:
    envs = EnvPoolBatch(spec_of("Pendulum-v1"), 2, [0, 1])
    total = np.zeros(2)
    for step in range(1, 401):
        finished = envs.step(np.zeros((2, 1), np.float32))
        total += envs.rewards
        if step % 200:
            assert finished == []
            assert envs.so_far(0) == (pytest.approx(total[0]), step % 200)
        else:
            assert [(env, length) for env, _, length in finished] == [(0, 200), (1, 200)]
            assert [episode for _, episode, _ in finished] == pytest.approx(total.tolist())
            assert not envs.terminated.any()
            total[:] = 0.0


def test_episode_that_fails_at_its_limit_is_terminated() -> None:
    def first_end(limit: int | None) -> tuple[int, bool]:
        envs = EnvPoolBatch(spec_of("InvertedPendulum-v5", max_episode_steps=limit), 1, [3])
        while True:
            finished = envs.step(np.ones((1, 1), np.float32))
            if finished:
                return finished[0][2], bool(envs.terminated[0])

    length, terminated = first_end(None)
    assert terminated
    assert first_end(length) == (length, True)
    assert first_end(length - 1) == (length - 1, False)


def test_seeds_decide_where_episodes_begin() -> None:
    one, same, other = (EnvPoolBatch(spec_of("Pendulum-v1"), 2, seeds) for seeds in ([1, 2], [1, 2], [3, 2**32 - 1]))
    np.testing.assert_array_equal(one.observations, same.observations)
    assert not np.array_equal(one.observations, other.observations)
    assert not np.array_equal(one.observations[0], one.observations[1])
    other.step(np.ones((2, 1), np.float32))
    other.reset([1, 2])
    np.testing.assert_array_equal(one.observations, other.observations)
    assert other.so_far(0) == (0.0, 0)
    one.close()


def test_dict_observations_are_flattened() -> None:
    envs = EnvPoolBatch(spec_of("WalkerWalk-v1"), 2, [0, 1])
    assert envs.observations.shape == (2, 24)
    assert envs.observations.any()
    envs.step(np.zeros((2, 6), np.float32))
    np.testing.assert_array_equal(envs.observations, envs.next_observations)


@pytest.mark.parametrize("name", ["Pendulum-v1", "Hopper-v5", "HalfCheetah-v5", "Ant-v5"])
def test_policies_are_scored_in_gymnasium_where_it_has_the_id(name: str, tmp_path: Path) -> None:
    spec = EnvSpec.of(Config(name).replace(backend="envpool"))
    assert isinstance(make_envs(spec, 1, [0]), EnvPoolBatch)
    assert isinstance(make_envs(spec_for_evaluation(spec), 1, [0]), EnvBatch)
    pooled, own = find_spaces(spec, tmp_path / "log"), find_spaces(EnvSpec(name), tmp_path / "log")
    assert (pooled.observation_size, pooled.action_size) == (own.observation_size, own.action_size)


def test_policies_are_scored_in_envpool_where_gymnasium_has_no_such_id(tmp_path: Path) -> None:
    spec = spec_of("WalkerWalk-v1")
    assert spec_for_evaluation(spec) is spec
    assert find_spaces(spec, tmp_path / "log").action_size == 6


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (spec_of("Pendulun-v1"), "EnvPool has no environment 'Pendulun-v1'; near names: Pendulum-v1"),
        (spec_of("Pendulum-v1", kwargs={"gravitas": 1}), "gravitas"),
        (spec_of("Breakout-v5"), "EnvPool's Breakout-v5|images"),
    ],
    ids=["unknown", "argument", "images"],
)
def test_refusals(spec: EnvSpec, said: str, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentSetupError, match=said) as raised:
        find_spaces(spec, tmp_path / "log")
    assert "\n" not in str(raised.value)


def test_callables_are_not_for_envpool() -> None:
    with pytest.raises(EnvironmentSetupError, match="--backend envpool needs an EnvPool id"):
        check_exists(spec_of("mine()", factory=lambda: gymnasium.make("Pendulum-v1")))


def test_training_and_evaluation_through_the_command(spreeze: Spreeze) -> None:
    settings = {"env_module": None, "backend": "envpool", "target_return": -3000, "max_seconds": 90}
    finished = spreeze.train("Pendulum-v1", **settings)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    assert spreeze.read("config.json")["backend"] == "envpool"

    evaluated = spreeze("evaluate", "run", "--episodes", "2", "--seed", "3", "--json", "scores.json")
    assert evaluated.returncode == 0, evaluated.stderr
    assert evaluated.stderr == ""
    seeds = np.random.default_rng(3).integers(2**31, size=2).tolist()
    again = score(load_policy(spreeze.run_dir).actor(2), EnvBatch(EnvSpec("Pendulum-v1"), 2, seeds), seeds)
    assert again is not None
    assert json.loads((spreeze.folder / "scores.json").read_text())["returns"] == pytest.approx(again.returns)


def test_bench_compares_with_the_loop_of_gymnasium(spreeze: Spreeze) -> None:
    words = ("--backend", "envpool", "--seconds", "0.2", "--repeats", "1", "--json", "figures.json")
    finished = spreeze("bench", "sampling", "Pendulum-v1", *words)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    figures = json.loads((spreeze.folder / "figures.json").read_text())
    assert figures["backend"] == "envpool"
    assert figures["ratio"] == pytest.approx(figures["samplers"][0]["sampling_hz"] / figures["raw_hz"][0])


def test_bench_needs_an_id_that_gymnasium_has_too(spreeze: Spreeze) -> None:
    finished = spreeze("bench", "sampling", "WalkerWalk-v1", "--backend", "envpool")
    assert finished.returncode == 2
    assert "there is no environment 'WalkerWalk-v1'" in finished.stderr


def test_missing_package_is_told_with_the_line_that_installs_it(spreeze: Spreeze) -> None:
    environment = spreeze.without("envpool")
    before = sorted(spreeze.folder.iterdir())
    finished = spreeze("train", "Pendulum-v1", "--backend", "envpool", "--run-dir", "run", environment=environment)
    assert finished.returncode == 2
    assert finished.stdout == ""
    assert finished.stderr.count("\n") == 1
    assert 'needs EnvPool, which is not installed: pip install "spreeze[envpool]"' in finished.stderr
    assert sorted(spreeze.folder.iterdir()) == before


def test_id_that_envpool_does_not_have_leaves_nothing(spreeze: Spreeze) -> None:
    finished = spreeze("train", "Pendulun-v1", "--backend", "envpool", "--run-dir", "run", "--max-seconds", "20")
    assert finished.returncode == 2
    assert finished.stderr.count("\n") == 1
    assert "EnvPool has no environment 'Pendulun-v1'" in finished.stderr
    assert not spreeze.run_dir.exists()
