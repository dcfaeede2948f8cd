from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from spreeze.channels.spaces import ContinuousActions
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.backend import check_exists
from spreeze.environments.batch import EnvBatch
from spreeze.environments.facts import find_spaces
from spreeze.environments.make import make_env
from spreeze.environments.spaces import spaces_of
from spreeze.errors import EnvironmentSetupError, UsageError

Actions = NDArray[np.float32]


class Counting(gymnasium.Env[Any, Any]):
    """Observes (number, episode, step); rewards the step's number; ends its episodes after a fixed length."""

    def __init__(
        self,
        number: int = 0,
        length: int = 3,
        ending: str = "truncated",
        action_space: spaces.Space[Any] | None = None,
    ) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,))
        self.action_space = action_space or spaces.Box(-1.0, 1.0, (1,))
        self.number, self.length, self.ending = number, length, ending
        self.episode, self.steps = -1, 0
        self.seeds: list[int | None] = []
        self.actions: list[Any] = []
        self.closed = False

    def observe(self) -> Any:
        return np.array([self.number, self.episode, self.steps], np.float32)

    def reward(self) -> Any:
        return float(self.steps)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.seeds.append(seed)
        self.episode += 1
        self.steps = 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        self.steps += 1
        ends = self.steps >= self.length
        terminated = ends and self.ending in ("terminated", "both")
        return self.observe(), self.reward(), terminated, ends and self.ending in ("truncated", "both"), {}

    def close(self) -> None:
        self.closed = True


def batch_of(envs: list[Counting], seeds: list[int] | None = None) -> EnvBatch:
    waiting = list(envs)
    spec = EnvSpec("counting", factory=lambda: waiting.pop(0))
    return EnvBatch(spec, len(envs), seeds or list(range(len(envs))))


def zeros(envs: EnvBatch) -> Actions:
    return np.zeros((len(envs), envs.spaces.action_size), np.float32)


def refusal(build: Callable[[], object]) -> str:
    """The message of a refusal, which must be one line that says what to do."""
    with pytest.raises(EnvironmentSetupError) as raised:
        build()
    assert isinstance(raised.value, UsageError)
    assert "\n" not in str(raised.value)
    return str(raised.value)


# --- stepping ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ending", "terminated"), [("truncated", False), ("terminated", True), ("both", True)])
def test_last_observation_of_an_episode_is_the_true_one(ending: str, terminated: bool) -> None:
    envs = batch_of([Counting(7, length=2, ending=ending), Counting(8, length=100)])
    assert envs.observations.tolist() == [[7, 0, 0], [8, 0, 0]]
    assert envs.step(zeros(envs)) == []
    assert envs.next_observations.tolist() == envs.observations.tolist() == [[7, 0, 1], [8, 0, 1]]
    assert envs.terminated.tolist() == [False, False]

    finished = envs.step(zeros(envs))
    assert [env for env, _, _ in finished] == [0]
    assert envs.next_observations.tolist() == [[7, 0, 2], [8, 0, 2]]  # where the episode ended
    assert envs.observations.tolist() == [[7, 1, 0], [8, 0, 2]]  # where the next one begins
    assert envs.terminated.tolist() == [terminated, False]

    assert envs.step(zeros(envs)) == []
    assert envs.next_observations.tolist() == [[7, 1, 1], [8, 0, 3]]
    assert envs.terminated.tolist() == [False, False]


def test_returns_and_lengths_are_those_of_each_episode() -> None:
    envs = batch_of([Counting(0, length=3), Counting(1, length=5, ending="terminated"), Counting(2, length=100)])
    finished = {step: envs.step(zeros(envs)) for step in range(1, 16)}
    assert {step: ended for step, ended in finished.items() if ended} == {
        3: [(0, 6.0, 3)],
        5: [(1, 15.0, 5)],
        6: [(0, 6.0, 3)],
        9: [(0, 6.0, 3)],
        10: [(1, 15.0, 5)],
        12: [(0, 6.0, 3)],
        15: [(0, 6.0, 3), (1, 15.0, 5)],
    }
    assert envs.rewards.tolist() == [3.0, 5.0, 15.0]


def test_episodes_are_seeded_once_and_go_on_without() -> None:
    players = [Counting(length=2), Counting(length=3)]
    envs = batch_of(players, seeds=[11, 22])
    for _ in range(6):
        envs.step(zeros(envs))
    assert [player.seeds for player in players] == [[11, None, None, None], [22, None, None]]


def test_reset_begins_anew_in_every_environment() -> None:
    players = [Counting(0, length=4), Counting(1, length=4)]
    envs = batch_of(players)
    envs.step(zeros(envs))
    envs.reset([5, 6])
    assert [player.seeds[-1] for player in players] == [5, 6]
    assert envs.observations.tolist() == [[0, 1, 0], [1, 1, 0]]
    finished = [envs.step(zeros(envs)) for _ in range(4)]
    assert finished == [[], [], [], [(0, 10.0, 4), (1, 10.0, 4)]]  # nothing is left of the step before


def test_seeds_decide_where_episodes_begin() -> None:
    spec = EnvSpec("Pendulum-v1")
    one, same, other = (EnvBatch(spec, 2, seeds) for seeds in ([1, 2], [1, 2], [3, 4]))
    np.testing.assert_array_equal(one.observations, same.observations)
    assert not np.array_equal(one.observations, other.observations)
    assert not np.array_equal(one.observations[0], one.observations[1])


def test_close_closes_every_environment() -> None:
    players = [Counting(), Counting()]
    batch_of(players).close()
    assert [player.closed for player in players] == [True, True]


@pytest.mark.parametrize(
    "reward", [2, np.float64(2.0), np.float32(2.0), np.array(2.0), True + 1], ids=lambda reward: type(reward).__name__
)
def test_rewards_may_be_any_kind_of_number(reward: Any) -> None:
    class Rewarding(Counting):
        def reward(self) -> Any:
            return reward

    envs = batch_of([Rewarding(), Rewarding()])
    finished = [envs.step(zeros(envs)) for _ in range(3)][-1]
    assert envs.rewards.tolist() == [2.0, 2.0]
    assert finished == [(0, 6.0, 3), (1, 6.0, 3)]


def test_episodes_of_an_id_can_be_limited() -> None:
    envs = EnvBatch(EnvSpec("Pendulum-v1", max_episode_steps=5), 2, [0, 1])
    lengths = [[length for _, _, length in envs.step(zeros(envs))] for _ in range(10)]
    assert lengths == [[], [], [], [], [5, 5]] * 2
    assert envs.terminated.tolist() == [False, False]


def test_episodes_of_a_callable_can_be_limited() -> None:
    envs = EnvBatch(EnvSpec("counting", factory=lambda: Counting(length=100), max_episode_steps=4), 1, [0])
    lengths = [[length for _, _, length in envs.step(zeros(envs))] for _ in range(8)]
    assert lengths == [[], [], [], [4]] * 2
    assert envs.next_observations.tolist() == [[0, 1, 4]]


class Doubled(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper of the user's own: rewards twice as much."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, 2 * reward, terminated, truncated, info


def test_own_wrappers_and_limits_below_them_stay() -> None:
    limited = gymnasium.wrappers.TimeLimit
    spec = EnvSpec("counting", factory=lambda: limited(limited(Doubled(limited(Counting(length=100), 3)), 5), 4))
    envs = EnvBatch(spec, 1, [0])
    finished = [envs.step(zeros(envs)) for _ in range(6)]
    assert finished == [[], [], [(0, 12.0, 3)]] * 2
    # The outer limits count too, the shortest of them.
    envs = EnvBatch(EnvSpec("counting", factory=lambda: limited(limited(Doubled(Counting(length=9)), 5), 4)), 1, [0])
    assert [len(envs.step(zeros(envs))) for _ in range(8)] == [0, 0, 0, 1] * 2


def test_episode_that_ends_for_good_at_its_limit_is_terminated() -> None:
    spec = EnvSpec("counting", factory=lambda: Counting(length=4, ending="terminated"), max_episode_steps=4)
    envs = EnvBatch(spec, 1, [0])
    finished = [envs.step(zeros(envs)) for _ in range(4)][-1]
    assert finished == [(0, 10.0, 4)]
    assert envs.terminated.tolist() == [True]


def test_dict_observations_are_flattened() -> None:
    class Sensing(Counting):
        def __init__(self) -> None:
            super().__init__(length=2)
            self.observation_space = spaces.Dict({"mode": spaces.Discrete(3), "time": spaces.Box(0, 9, (1,))})

        def observe(self) -> Any:
            return {"time": np.array([self.steps], np.float32), "mode": self.episode % 3}

    envs = batch_of([Sensing()])
    assert envs.observations.tolist() == [[1, 0, 0, 0]]
    envs.step(zeros(envs))
    envs.step(zeros(envs))
    assert envs.next_observations.tolist() == [[1, 0, 0, 2]]
    assert envs.observations.tolist() == [[0, 1, 0, 0]]


# --- observations that are not what was declared ----------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4,), (2,), (2, 3)])
def test_first_observation_must_fit_its_space(shape: tuple[int, ...]) -> None:
    class Wrong(Counting):
        def observe(self) -> Any:
            return np.zeros(shape, np.float32)

    with pytest.raises(ValueError, match="observation"):
        batch_of([Wrong()])


@pytest.mark.parametrize("shape", [(4,), (2,), (1,), (), (2, 3)])
def test_later_observations_must_fit_the_space(shape: tuple[int, ...]) -> None:
    class Changing(Counting):
        def observe(self) -> Any:
            return np.zeros(shape if self.steps else 3, np.float32)

    envs = batch_of([Changing()])
    with pytest.raises(ValueError, match=r".+"):
        envs.step(zeros(envs))


def test_later_observations_of_a_dict_must_fit_the_space() -> None:
    class Changing(Counting):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Dict({"time": spaces.Box(0, 9, (1,))})

        def observe(self) -> Any:
            return {"time": np.zeros((2, 1) if self.steps else 1)}

    envs = batch_of([Changing()])
    with pytest.raises(ValueError, match="observation"):
        envs.step(zeros(envs))


# --- actions ----------------------------------------------------------------------------------------------------


class Strict(Counting):
    """Refuses actions outside its space, as MuJoCo's wrappers and robots do."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), f"{action} is not in {self.action_space}"
        return super().step(action)


finite = st.floats(-(2.0**100), 2.0**100, width=32)


@settings(deadline=None, max_examples=200)
@given(
    bounds=st.lists(st.tuples(finite, finite).map(sorted), min_size=1, max_size=4),
    squashed=st.lists(st.floats(-1, 1, width=32), min_size=4, max_size=4),
)
def test_actions_fill_the_range_and_never_leave_it(bounds: list[list[float]], squashed: list[float]) -> None:
    low, high = (np.array([pair[side] for pair in bounds], np.float32) for side in (0, 1))
    player = Strict(length=10**9, action_space=spaces.Box(low, high, dtype=np.float32))
    envs = batch_of([player])
    ones = np.ones((1, len(bounds)), np.float32)
    inner = np.array([squashed[: len(bounds)]], np.float32)
    for actions in (-ones, ones, 0 * ones, inner):
        envs.step(actions)
    assert all(action.dtype == np.float32 and action.shape == low.shape for action in player.actions)
    # float32 has about seven digits, and fewer of them below 1e-37.
    rounding = 1e-6 * (np.abs(low.astype(np.float64)) + np.abs(high)) + 1e-37
    expected = (low.astype(np.float64) + high) / 2 + (high.astype(np.float64) - low) / 2 * inner[0]
    middle = (low.astype(np.float64) + high) / 2
    for action, wanted in zip(player.actions, (low, high, middle, expected), strict=True):
        assert (np.abs(action - wanted) <= rounding).all()


@pytest.mark.parametrize("action_shape", [(), (1,), (2, 3)])
def test_actions_have_the_shape_of_the_environment(action_shape: tuple[int, ...]) -> None:
    low = np.arange(np.prod(action_shape, dtype=int), dtype=np.float32).reshape(action_shape)
    player = Strict(action_space=spaces.Box(low, low + 2))
    envs = batch_of([player, Strict(action_space=player.action_space)])
    assert envs.spaces.action.shape == action_shape
    assert envs.spaces.action_size == low.size
    envs.step(np.ones((2, low.size), np.float32))
    assert np.shape(player.actions[0]) == action_shape
    np.testing.assert_array_equal(player.actions[0], low + 2)


@pytest.mark.parametrize(("low", "high"), [(-0.1, 0.1), (-1 / 3, 2 / 3), (0.7, 0.9), (-1e-300, 1e-300)])
def test_actions_never_leave_bounds_that_float32_cannot_hold(low: float, high: float) -> None:
    player = Strict(length=10**9, action_space=spaces.Box(low, high, (1,), np.float64))
    envs = batch_of([player])
    for squashed in (-1.0, -0.3, 0.0, 0.3, 1.0):
        envs.step(np.array([[squashed]], np.float32))
    taken = [float(np.asarray(action).item()) for action in player.actions]
    assert all(low <= action <= high for action in taken)
    assert taken == sorted(taken)


def test_actions_are_finite_for_the_widest_finite_bounds() -> None:
    widest = float(np.finfo(np.float32).max)
    player = Strict(length=10**9, action_space=spaces.Box(-widest, widest, (1,), np.float32))
    envs = batch_of([player])
    for squashed in (-1.0, 0.0, 0.5, 1.0):
        envs.step(np.array([[squashed]], np.float32))
    taken = [float(action.item()) for action in player.actions]
    assert taken == pytest.approx([-widest, 0.0, widest / 2, widest], rel=1e-6)


def test_environment_may_keep_the_actions_it_gets() -> None:
    player = Counting(length=100)
    envs = batch_of([player])
    actions = zeros(envs)
    for value in (0.25, 0.5):
        actions[:] = value
        envs.step(actions)
    assert [action.tolist() for action in player.actions] == [[0.25], [0.5]]


# --- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action_space", "said"),
    [
        (spaces.Dict({"a": spaces.Box(-1, 1, (1,))}), "Dict actions: wrap it"),
        (spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (1,))]), "Tuple actions: wrap it"),
        (spaces.Text(3), "Text actions"),
        (spaces.Box(-np.inf, np.inf, (2,)), "unbounded"),
        (spaces.Box(np.array([-1.0, -np.inf]), np.array([1.0, 1.0]), dtype=np.float64), "unbounded"),
        (spaces.Box(0, 5, (2,), np.int32), "int32"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_actions_that_are_not_supported(action_space: spaces.Space[Any], said: str) -> None:
    message = refusal(lambda: spaces_of(Counting(action_space=action_space), "Test-v0"))
    assert said in message
    assert "Test-v0" in message
    assert "Discrete, MultiDiscrete and MultiBinary ones" in message


@pytest.mark.parametrize(
    ("observation_space", "said"),
    [
        (spaces.Box(0, 255, (96, 96, 3), np.uint8), "images of shape (96, 96, 3)"),
        (spaces.Box(0, 1, (3, 8, 8)), "images"),
        (spaces.Box(0, 255, (84, 84), np.uint8), "images"),
        (spaces.Dict({"camera": spaces.Box(0, 255, (8, 8, 3), np.uint8)}), "images"),
        (spaces.Box(0, 255, (16, 16), np.uint8), "images"),
        (spaces.Box(0, 255, (2, 16, 16), np.uint8), "images"),
        (spaces.Box(0, 255, (12, 84, 84), np.uint8), "images"),
        (spaces.Box(0, 1, (4, 84, 84, 3)), "images"),
        (spaces.Box(0, 1, (8, 8, 1)), "uint8 array with two axes of 16 or more"),
        (spaces.Box(0, 1, (0,)), "empty"),
        (spaces.Dict({}), "empty"),
        (spaces.Text(5), "Text observations"),
        (spaces.Sequence(spaces.Discrete(3)), "Sequence observations"),
        (spaces.MultiDiscrete(np.array([[2, 2], [3, 3]])), "MultiDiscrete observations"),
        (spaces.MultiDiscrete([2, 2], start=[1, 0]), "MultiDiscrete observations"),
    ],
    ids=str,
)
def test_observations_that_are_not_supported(observation_space: spaces.Space[Any], said: str) -> None:
    env = Counting()
    env.observation_space = observation_space
    message = refusal(lambda: spaces_of(env, "Test-v0"))
    assert said in message
    assert "Test-v0" in message


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 255, (3, 3), np.uint8),
        spaces.Box(0, 255, (15, 100), np.uint8),
        spaces.Box(0, 255, (7, 7, 3), np.uint8),  # MiniGrid's
        spaces.Box(0, 255, (300,), np.uint8),
        spaces.Box(-1, 1, (3, 3, 3)),
        spaces.Box(-1, 1, (7, 8, 3)),
        spaces.Box(-1, 1, (2, 9, 9)),
        spaces.Box(-1, 1, (20, 20)),
    ],
    ids=str,
)
def test_small_arrays_are_no_images(space: spaces.Box) -> None:
    env = Counting()
    env.observation_space = spaces.Dict({"goal": space})
    assert spaces_of(env, "Test-v0").observation == {
        "kind": "dict",
        "parts": {"goal": {"kind": "box", "shape": list(space.shape)}},
    }


@pytest.mark.parametrize(
    ("name", "near"),
    [("Pendulm-v1", "Pendulum-v1"), ("Pendulum", "Pendulum-v1"), ("HalfCheeta-v5", "HalfCheetah-v5")],
)
def test_unknown_id_suggests_near_names(name: str, near: str) -> None:
    assert near in refusal(lambda: check_exists(EnvSpec(name)))
    assert near in refusal(lambda: make_env(EnvSpec(name)))


def test_unknown_id_of_a_package_says_how_to_import_it() -> None:
    message = refusal(lambda: check_exists(EnvSpec("Zzqy/Qwertz-v0")))
    assert "Zzqy/Qwertz-v0" in message
    assert "--env-module" in message


def test_unknown_id_without_a_near_name_says_what_else_may_help() -> None:
    message = refusal(lambda: check_exists(EnvSpec("qqqqqqqq")))
    assert "qqqqqqqq" in message
    assert "--env-module" in message


def test_known_ids_and_callables_exist() -> None:
    assert check_exists(EnvSpec("Pendulum-v1")) is None  # type: ignore[func-returns-value]
    assert check_exists(EnvSpec("anything", factory=Counting)) is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    ("spec", "origin"),
    [
        (EnvSpec("no_such_module:Pendulum-v1"), "ENV"),
        (EnvSpec("Pendulum-v1", modules=("no_such_module",)), "--env-module"),
        (EnvSpec("x", modules=("no_such_module",), factory=Counting), "--env-module"),
    ],
)
def test_missing_module_is_named(spec: EnvSpec, origin: str) -> None:
    message = refusal(lambda: check_exists(spec))
    assert message.startswith(origin)
    assert "'no_such_module'" in message


def test_module_that_raises_is_named_with_what_it_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spreeze_test_raises.py").write_text("raise RuntimeError('no licence\\nfound')\n")
    monkeypatch.syspath_prepend(tmp_path)
    message = refusal(lambda: check_exists(EnvSpec("Pendulum-v1", modules=("spreeze_test_raises",))))
    assert "spreeze_test_raises" in message
    assert "RuntimeError: no licence found" in message


def test_module_registers_its_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spreeze_test_registers.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('SpreezeTest/Registered-v0', 'gymnasium.envs.classic_control:PendulumEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        env = make_env(EnvSpec("spreeze_test_registers:SpreezeTest/Registered-v0"))
        assert spaces_of(env, "x").observation_size == 3
    finally:
        gymnasium.registry.pop("SpreezeTest/Registered-v0", None)


def test_constructor_that_raises_is_told_with_its_arguments() -> None:
    def broken(gravity: float) -> gymnasium.Env[Any, Any]:
        raise ValueError(f"gravity {gravity}\nis not on this planet")

    message = refusal(lambda: make_env(EnvSpec("broken", kwargs={"gravity": -1}, factory=broken)))
    assert "broken could not be made" in message
    assert "ValueError: gravity -1 is not on this planet" in message
    assert '{"gravity": -1}' in message


def test_argument_that_the_environment_does_not_know() -> None:
    message = refusal(lambda: make_env(EnvSpec("Pendulum-v1", kwargs={"gravitas": 1})))
    assert "Pendulum-v1" in message
    assert "gravitas" in message


def test_missing_package_of_an_environment_is_told() -> None:
    def needs_more() -> gymnasium.Env[Any, Any]:
        import no_such_simulator  # type: ignore[import-not-found]

        return no_such_simulator.make()  # type: ignore[no-any-return]

    message = refusal(lambda: make_env(EnvSpec("needs_more", factory=needs_more)))
    assert "missing" in message
    assert "no_such_simulator" in message


@pytest.mark.parametrize("made", [None, 5, "Pendulum-v1", Counting])
def test_callable_must_give_an_environment(made: Any) -> None:
    message = refusal(lambda: make_env(EnvSpec("mine", factory=lambda: made)))
    assert "mine" in message
    assert "environment" in message


# --- what a spec says -------------------------------------------------------------------------------------------


def test_arguments_reach_the_environment() -> None:
    env = make_env(EnvSpec("Pendulum-v1", kwargs={"g": 3.5}))
    assert env.unwrapped.g == 3.5  # type: ignore[attr-defined]
    player = make_env(EnvSpec("counting", kwargs={"number": 4, "length": 9}, factory=Counting))
    assert isinstance(player, Counting)
    assert (player.number, player.length) == (4, 9)


def test_spec_of_a_config() -> None:
    config = Config("Pendulum-v1").replace(env_kwargs={"g": 2.0}, env_module=["math"], max_episode_steps=7)
    assert EnvSpec.of(config) == EnvSpec("Pendulum-v1", ("math",), {"g": 2.0}, 7, backend="auto", hang_s=120.0)
    assert EnvSpec.of(config, Counting).factory is Counting


def test_spaces_describe_the_environment() -> None:
    described = spaces_of(make_env(EnvSpec("Pendulum-v1")), "Pendulum-v1")
    assert (described.observation_size, described.action_size) == (3, 1)
    assert isinstance(described.action, ContinuousActions)
    assert described.action.low.tolist() == [-2.0]
    assert described.action.high.tolist() == [2.0]
    assert described.action.low.dtype == described.action.high.dtype == np.float32


def test_looking_at_an_environment_closes_it_and_keeps_the_terminal_clean(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = []

    def chatty() -> Counting:
        os.write(1, b"physics 1.0\n")  # as a library of C prints
        made.append(Counting())
        return made[0]

    described = find_spaces(EnvSpec("chatty", factory=chatty), tmp_path / "log")
    assert (described.observation_size, described.action_size) == (3, 1)
    assert made[0].closed
    os.write(1, b"afterwards\n")
    assert capfd.readouterr().out == "afterwards\n"
    assert (tmp_path / "log").read_text() == "physics 1.0\n"


def test_what_a_library_of_c_has_still_in_its_buffer_goes_to_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    libc = ctypes.CDLL(None)

    def chatty() -> Counting:
        libc.printf(b"physics 1.0\n")
        return Counting()

    find_spaces(EnvSpec("chatty", factory=chatty), tmp_path / "log")
    libc.fflush(None)
    assert capfd.readouterr().out == ""
    assert (tmp_path / "log").read_text() == "physics 1.0\n"


def test_terminal_is_given_back_after_a_failure(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(EnvironmentSetupError):
        find_spaces(EnvSpec("Pendulum-v1", kwargs={"nonsense": 1}), tmp_path / "log")
    os.write(1, b"afterwards\n")
    assert capfd.readouterr().out == "afterwards\n"


def test_environment_of_another_size_is_refused_with_both_sizes() -> None:
    small = spaces_of(Counting(), "small")
    large = spaces_of(Counting(action_space=spaces.Box(-1, 1, (5,))), "large")
    assert small.require_same(spaces_of(Counting(), "again")) is None  # type: ignore[func-returns-value]
    with pytest.raises(ValueError, match="3 observations and 5 actions, but with 3 and 1"):
        small.require_same(large)
