"""Peers for discrete actions: which are run on which environment, how they are evaluated, what they are set to."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "peers")]

import cleanrl_dqn  # noqa: E402
import protocol  # noqa: E402
import tuned  # noqa: E402

import side_by_side as script  # noqa: E402
from comparison import algo_of, batch_of, is_spreeze  # noqa: E402
from peer_environments import find_peers  # noqa: E402

CONTINUOUS = ["rllib", "sb3", "sbx", "tianshou", "torchrl"]
DISCRETE = ["cleanrl-dqn", "sb3-dqn", "sb3-ppo", "sbx-dqn", "sbx-ppo", "tianshou-dqn"]
TASKS = ("CartPole-v1", "LunarLander-v3", "Acrobot-v1")


# --- which peers -----------------------------------------------------------------------------------------------


def parse(monkeypatch: pytest.MonkeyPatch, *words: str) -> argparse.Namespace:
    monkeypatch.setattr(sys, "argv", ["side_by_side.py", *words])
    return script.parse_arguments(find_peers())


@pytest.mark.parametrize(
    ("words", "systems", "batch_size"),
    [
        (["solve", "--env", "Pendulum-v1"], CONTINUOUS, 256),
        (["solve", "--env", "CartPole-v1"], DISCRETE, None),  # what is tuned
        (["solve", "--env", "CartPole-v1", "--batch-size", "32"], DISCRETE, 32),
        (["throughput", "--env", "CartPole-v1"], DISCRETE, 256),  # the same for all
    ],
)
def test_by_default_the_peers_are_those_for_the_actions_of_the_environment(
    words: list[str], systems: list[str], batch_size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = parse(monkeypatch, *words)
    assert arguments.systems == ["spreeze", *systems]
    assert arguments.batch_size == batch_size
    given = [flag for flag in script.peer_flags(systems[0], arguments) if flag.startswith("--batch-size")]
    assert given == ([] if batch_size is None else [f"--batch-size={batch_size}"])


@pytest.mark.parametrize(
    ("env", "system", "said"),
    [
        ("CartPole-v1", "sb3", "sb3 is for continuous actions, and those of CartPole-v1 are discrete; for these"),
        ("Pendulum-v1", "sbx-ppo", "sbx-ppo is for discrete actions, and those of Pendulum-v1 are continuous"),
        ("CartPole-v1", "spreeze-td3", "--systems spreeze-td3: --algo td3 takes continuous actions"),
        ("CartPole-v1", "spreeze-ppo", "there are spreeze, spreeze-N, spreeze-sac"),
        ("CardPole-v1", "spreeze", "there is no environment 'CardPole-v1'"),
    ],
)
def test_a_system_that_does_not_fit_is_refused_in_one_line(
    env: str, system: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        parse(monkeypatch, "solve", "--env", env, "--systems", system)
    assert refused.value.code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert said in lines[0]


def test_the_name_of_a_variant_of_spreeze_states_its_algorithm_and_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = parse(monkeypatch, "solve", "--env", "CartPole-v1", "--systems", "spreeze-sac", "spreeze-dqn-64")
    assert "--algo=sac" in script.spreeze_flags("spreeze-sac", arguments)
    assert {"--algo=dqn", "--batch-size=64"} <= set(script.spreeze_flags("spreeze-dqn-64", arguments))
    assert not any(flag.startswith("--algo") for flag in script.spreeze_flags("spreeze-64", arguments))
    assert [(algo_of(name), batch_of(name)) for name in ("spreeze", "spreeze-8")] == [(None, None), (None, "8")]
    assert not any(map(is_spreeze, ("sb3-dqn", "spreeze-", "spreeze-0", "spreezes")))
    titles = [script.spreeze_title(name) for name in ("spreeze", "spreeze-256", "spreeze-sac", "spreeze-dqn-64")]
    assert titles == ["Spreeze", "Spreeze, batch 256", "Spreeze, SAC", "Spreeze, DQN, batch 64"]


def test_the_runners_of_a_library_can_share_an_environment() -> None:
    needed: dict[str, set[tuple[str, ...]]] = {}
    for peer in find_peers().values():
        needed.setdefault(peer.library, set()).add(peer.dependencies)
    assert {"sb3", "sbx", "tianshou", "cleanrl"} <= set(needed)
    assert {library: len(dependencies) for library, dependencies in needed.items()} == dict.fromkeys(needed, 1)


# --- the protocol ----------------------------------------------------------------------------------------------


class Strict(gym.Env[Any, Any]):
    """Takes nothing but an int; each step with 2 is worth one."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(3)
    steps = 0

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert type(action) is int
        self.steps += 1
        return np.zeros(1, np.float32), float(action == 2), self.steps == 5, False, {}


@pytest.fixture
def strict() -> str:
    if "Strict-v0" not in gym.registry:
        gym.register("Strict-v0", Strict, disable_env_checker=True)
    return "Strict-v0"


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_environments_get_discrete_actions_as_ints(strict: str, dtype: Any) -> None:
    evaluator = protocol.Evaluator(strict, 2, 0)
    assert evaluator.mean_return(lambda _: np.array([2, 0], dtype)) == 2.5


@pytest.mark.parametrize("actions", [np.array([2.0, 2.0]), np.array([[2], [2]]), np.array([2])])
def test_what_is_no_integer_for_each_episode_is_refused(strict: str, actions: Any) -> None:
    with pytest.raises(TypeError, match="not an integer for each of 2 episodes"):
        protocol.Evaluator(strict, 2, 0).mean_return(lambda _: actions)


def test_a_policy_is_evaluated_once(strict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["runner", "--env", strict, "--json", "x.json", "--eval-interval-s", "1e-9"])
    trial = protocol.Trial("strict", (), protocol.parse_arguments("Nothing."))
    monkeypatch.setattr(protocol, "EVALUATION_SHARE", 0.0)
    calls: list[Any] = []

    def act(observations: Any) -> Any:
        calls.append(observations)
        return np.zeros(len(observations), np.int64)

    evaluations = []
    for updates in (0, 5, 5, 6):
        time.sleep(0.002)  # more than the clock's last digit
        trial.goes_on(1, updates, act)
        evaluations.append(len(calls) / 5)  # steps of an episode
    assert evaluations == [0, 1, 1, 2]


# --- settings --------------------------------------------------------------------------------------------------


def stated(**changed: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"batch_size": None, "envs": None, "window": None, **changed})


def test_the_command_line_comes_before_what_is_tuned() -> None:
    arguments = stated()
    settings = tuned.fill_in(arguments, tuned.ZOO_PPO["CartPole-v1"])
    assert settings == tuned.ZOO_PPO["CartPole-v1"]
    assert (arguments.batch_size, arguments.envs, arguments.hidden) == (256, 8, (64, 64))
    arguments = stated(batch_size=32, envs=2)
    settings = tuned.fill_in(arguments, tuned.ZOO_PPO["CartPole-v1"])
    assert (settings.batch_size, settings.envs, settings.n_steps) == (32, 2, 32)
    assert (arguments.batch_size, arguments.envs) == (32, 2)


@pytest.mark.parametrize("table", [tuned.ZOO_DQN, tuned.ZOO_PPO, tuned.TIANSHOU_DQN])
def test_a_window_has_the_same_network_for_all(table: dict[str, tuned.Settings]) -> None:
    assert set(table) == set(TASKS)
    for settings in table.values():
        arguments = stated(window=8.0, batch_size=256)
        assert tuned.fill_in(arguments, settings).hidden == arguments.hidden == (256, 256)


def test_schedules_follow_the_tuned_length_and_then_stay() -> None:
    dqn, ppo = tuned.ZOO_DQN["CartPole-v1"], tuned.ZOO_PPO["CartPole-v1"]
    assert [round(dqn.eps_at(steps), 3) for steps in (0, 4000, 8000, 10**6)] == [1.0, 0.52, 0.04, 0.04]
    rate = ppo.scheduled(ppo.learning_rate, 10**9)
    assert callable(rate)
    assert [round(rate(1.0 - steps / 10**9), 6) for steps in (0, 50_000, 100_000, 10**6)] == [1e-3, 5e-4, 0.0, 0.0]
    assert tuned.ZOO_PPO["Acrobot-v1"].scheduled(0.2, 10**9) == 0.2
    acrobot, lander = tuned.TIANSHOU_DQN["Acrobot-v1"], tuned.TIANSHOU_DQN["LunarLander-v3"]
    assert [acrobot.eps_at(steps) for steps in (0, 100_000, 300_000, 10**6)] == [0.5, 0.5, 0.375, 0.25]
    assert [round(lander.eps_at(steps), 3) for steps in (0, 100_000, 10**7)] == [0.73, 0.443, 0.01]
    assert tuned.TianshouDqnSettings().eps_at(10**6) == 0.1


# --- the CleanRL-style DQN -------------------------------------------------------------------------------------


class Counting:
    """Ends a training after 300 steps, and remembers how many updates there were at each."""

    def __init__(self) -> None:
        self.arguments = argparse.Namespace(env="CartPole-v1", seed=0)
        self.updates: list[int] = []

    def goes_on(self, env_steps: int, updates: int, act: protocol.Act) -> bool:
        assert len(self.updates) == env_steps
        self.updates.append(updates)
        assert act(np.zeros((2, 4), np.float32)).shape == (2,)
        return env_steps < 300


def test_cleanrl_style_updates_at_every_tenth_step_after_the_first_ones() -> None:
    trial: Any = Counting()
    settings = tuned.DqnSettings(learning_starts=100, train_freq=10, batch_size=8, buffer_size=64)
    cleanrl_dqn.train(trial, settings, "cpu")
    assert [trial.updates[steps] for steps in (109, 110, 299, 300)] == [0, 1, 19, 20]


def test_cleanrl_style_update_moves_towards_the_reward_and_the_best_next_value() -> None:
    network, target = (torch.nn.Linear(1, 2, bias=False) for _ in range(2))
    torch.nn.init.zeros_(network.weight)
    target.weight.data = torch.tensor([[1.0], [3.0]])
    actions, rewards, terminated = torch.tensor([0, 1]), torch.ones(2), torch.tensor([0.0, 1.0])
    batch = [torch.ones(2, 1), actions, rewards, torch.ones(2, 1), terminated]
    cleanrl_dqn.update(network, target, torch.optim.SGD(network.parameters(), lr=1.0), batch, gamma=0.5)
    # The gradient of the mean of two squares is each distance to the target: 1 + 0.5 * 3, and 1 where it terminated.
    assert network.weight.flatten().tolist() == [2.5, 1.0]


def test_cleanrl_style_replay_is_a_ring() -> None:
    replay = cleanrl_dqn.Replay(4, 1, np.random.default_rng(0))
    for number in range(6):
        replay.add([number], number, float(number), [number + 1], number == 5)
    rows = columns(replay.sample(200, "cpu"))
    assert {row[1] for row in rows} == {2, 3, 4, 5}
    assert all(row == (row[1], row[1], row[1], row[1] + 1, row[1] == 5) for row in rows)


def columns(batch: Sequence[torch.Tensor]) -> list[tuple[Any, ...]]:
    return list(zip(*(column.flatten().tolist() for column in batch), strict=True))
