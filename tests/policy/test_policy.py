from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from spreeze import load_policy
from spreeze.algorithms import ALGORITHMS, networks
from spreeze.algorithms.kernels import operations
from spreeze.algorithms.spec import EXPLORATION, OUTPUTS_PER_ACTION, ActionKind
from spreeze.channels.spaces import DiscreteActions
from spreeze.channels.weights import version_path, write_weights
from spreeze.config.own_settings import find_algorithm
from spreeze.errors import RunFolderError
from spreeze.policy import actor
from spreeze.policy.actor import (
    KINDS,
    DeterministicActor,
    GaussianActor,
    layer_count,
    make_actor,
    policy_kind,
    random_actor,
)

torch.set_num_threads(1)

BOX = {"kind": "box", "shape": [3]}
ARM = {
    "kind": "dict",
    "parts": {
        "arm": {"kind": "tuple", "parts": [BOX, {"kind": "discrete", "n": 3, "start": 1}]},
        "goal": {"kind": "box", "shape": [2]},
    },
}
SIZES = [
    (3, 1, (64, 64), 1),
    (17, 6, (256, 256), 16),
    (376, 17, (256, 256), 33),
    (5, 2, (8,), 100),
    (4, 3, (64, 32, 16, 8), 7),
    (3, 1, (1024, 512), 5),
]


def normal(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def save(
    path: Path,
    encoding: Mapping[str, Any],
    size: int,
    low: Any,
    high: Any,
    shape: tuple[int, ...] | None = None,
    **changes: Any,
) -> dict[str, NDArray[np.float32]]:
    """Write a policy file as the learner does; changes replace tensors or metadata, None leaves them out."""
    low, high = np.asarray(low, np.float32).ravel(), np.asarray(high, np.float32).ravel()
    tensors: dict[str, Any] = {
        **random_actor(size, low.size, (16, 16), seed=1),
        "action_low": low,
        "action_high": high,
    }
    metadata = {
        "env": "Test-v0",
        "algo": "sac",
        "policy": "gaussian",
        "observation": json.dumps(encoding),
        "action_shape": json.dumps(low.shape if shape is None else shape),
        "version": "12",
    }
    for name, value in changes.items():
        group = metadata if isinstance(value, str) or name in metadata else tensors
        key = name.replace("__", ".")
        if value is None:
            del group[key]
        else:
            group[key] = value
    write_weights(path, tensors, metadata)
    return tensors


def mean_by_hand(tensors: Mapping[str, NDArray[Any]], vectors: NDArray[Any]) -> NDArray[np.float64]:
    """The most likely action in the environment's range, in float64."""
    x = vectors.astype(np.float64)
    for i in range(3):
        x = x @ tensors[f"actor.{i}.weight"].astype(np.float64) + tensors[f"actor.{i}.bias"]
        x = np.maximum(x, 0) if i < 2 else x
    low, high = tensors["action_low"].astype(np.float64), tensors["action_high"].astype(np.float64)
    squashed = np.tanh(x[:, : low.size])
    expected: NDArray[np.float64] = (high + low) / 2 + (high - low) / 2 * squashed
    return expected


# --- NumPy acts as torch does -----------------------------------------------------------------------------------


def test_bounds_of_the_standard_deviation_are_the_same() -> None:
    assert (actor.LOG_STD_MIN, actor.LOG_STD_MAX) == (operations.LOG_STD_MIN, operations.LOG_STD_MAX)
    outputs = np.array([[0.0, 0.0, 100.0, -100.0]], np.float32)  # two means, then two log standard deviations
    _, log_std = operations.split_gaussian(torch.from_numpy(outputs))
    assert log_std.tolist() == [[actor.LOG_STD_MAX, actor.LOG_STD_MIN]]


@pytest.mark.parametrize(("obs_dim", "act_dim", "hidden", "rows"), SIZES)
def test_actions_of_numpy_and_torch_agree(obs_dim: int, act_dim: int, hidden: tuple[int, ...], rows: int) -> None:
    parameters = networks.FlatParameters(networks.actor_shapes(obs_dim, 2 * act_dim, hidden), torch.device("cpu"))
    networks.initialise(parameters, torch.Generator().manual_seed(3))
    actor = GaussianActor({name: tensor.numpy() for name, tensor in parameters.frozen.items()}, rows)
    for seed in range(3):  # the buffers of a pass are used again in the next
        observations, noise = 2 * normal(rows, obs_dim, seed=seed), normal(rows, act_dim, seed=seed + 9)
        torch_observations = torch.from_numpy(observations)
        mean, _ = networks.gaussian(parameters.frozen, torch_observations)
        sampled, _ = networks.sample_action(parameters.frozen, torch_observations, torch.from_numpy(noise))
        np.testing.assert_allclose(actor.mean(observations), mean.tanh(), rtol=0, atol=1e-5)
        np.testing.assert_allclose(actor.sample(observations, noise), sampled, rtol=0, atol=1e-5)


def test_standard_deviation_is_clipped_on_both_sides() -> None:
    tensors = random_actor(3, 2, (8,), seed=0)
    tensors["actor.1.weight"][:] = 0
    tensors["actor.1.bias"][:] = [0.1, 0.1, 100.0, -100.0]
    noise = np.array([[0.1, 1.0]], np.float32)
    expected = np.tanh(0.1 + np.exp([actor.LOG_STD_MAX, actor.LOG_STD_MIN]) * noise)
    np.testing.assert_allclose(GaussianActor(tensors, 1).sample(normal(1, 3), noise), expected, rtol=1e-5)


def test_actions_are_the_callers_to_keep() -> None:
    actor = GaussianActor(random_actor(3, 2, (8,), seed=0), 4)
    for act in (actor.mean, lambda observations: actor.sample(observations, normal(4, 2))):
        first = act(normal(4, 3, seed=1))
        kept = first.copy()
        act(normal(4, 3, seed=2))
        np.testing.assert_array_equal(first, kept)
        assert np.abs(first).max() <= 1


def deterministic_tensors(seed: int = 0) -> dict[str, Any]:
    """Two components of an action, one output each."""
    return {**random_actor(3, 1, (8,), seed), **bounds_of(2)}


def bounds_of(act_dim: int) -> dict[str, NDArray[np.float32]]:
    return {"action_low": -np.ones(act_dim, np.float32), "action_high": np.ones(act_dim, np.float32)}


def test_a_deterministic_actor_adds_noise_to_the_action() -> None:
    tensors, observations = deterministic_tensors(), normal(4, 3)
    actor = make_actor(tensors, {"policy": "deterministic"}, 4)
    assert isinstance(actor, DeterministicActor)
    hidden = np.maximum(observations @ tensors["actor.0.weight"] + tensors["actor.0.bias"], 0)
    expected = np.tanh(hidden @ tensors["actor.1.weight"] + tensors["actor.1.bias"])
    np.testing.assert_allclose(actor.mean(observations), expected, rtol=1e-4, atol=1e-6)
    # Noise is added to the action, not to what is squashed, and the sum stays within its bounds.
    noise = np.array([[0.0, 0.1], [-0.1, 0.0], [9.0, -9.0], [0.0, 0.0]], np.float32)
    np.testing.assert_allclose(
        actor.sample(observations, noise), np.clip(expected + noise, -1, 1), rtol=1e-4, atol=1e-6
    )


# --- which kind of policy a file holds ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "actor_class"), [("gaussian", GaussianActor), ("deterministic", DeterministicActor)]
)
def test_the_kind_is_the_one_that_the_file_names(kind: str, actor_class: type) -> None:
    # Two outputs, and no bounds to guess from: a Gaussian of one component or two components without noise.
    tensors = random_actor(3, 1, (8,), seed=0)
    assert isinstance(make_actor(tensors, {"policy": kind}, 1), actor_class)


@pytest.mark.parametrize("act_dim", [1, 2, 6])
def test_files_that_do_not_name_the_kind_are_recognised_by_their_outputs(act_dim: int) -> None:
    gaussian = {**random_actor(3, act_dim, (8,), seed=0), **bounds_of(act_dim)}
    assert policy_kind(gaussian, {}) == "gaussian"
    deterministic = {
        name: tensor[..., :act_dim] if "actor.1" in name else tensor for name, tensor in gaussian.items()
    }
    assert policy_kind(deterministic, {}) == "deterministic"


def test_every_kind_can_be_declared_by_an_algorithm() -> None:
    assert dict(OUTPUTS_PER_ACTION) == {"gaussian": 2, "deterministic": 1, "greedy": 1, "categorical": 1}
    assert set(OUTPUTS_PER_ACTION) == set(EXPLORATION) == set(KINDS)
    algorithms = [find_algorithm(algo).for_actions(kind) for algo in ALGORITHMS for kind in get_args(ActionKind)]
    assert {algorithm.policy_kind for algorithm in algorithms} == set(KINDS)


@pytest.mark.parametrize("kind", ["mixture", "", "Gaussian", "two\nlines"])
def test_an_unknown_kind_is_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "p.safetensors"
    save(path, BOX, 3, [-1.0], [1.0], policy=kind)
    with pytest.raises(RunFolderError, match=r"p\.safetensors.*of kind.*gaussian, deterministic") as raised:
        load_policy(path)
    assert "\n" not in str(raised.value)
    with pytest.raises(RunFolderError, match="of kind"):
        make_actor(random_actor(3, 1, (8,), seed=0), {"policy": kind}, 1)


def test_a_policy_file_without_a_kind_acts_as_before(tmp_path: Path) -> None:
    tensors = save(tmp_path / "p.safetensors", BOX, 3, [-1.0], [1.0], policy=None)
    observations = normal(4, 3)
    loaded = load_policy(tmp_path / "p.safetensors")
    np.testing.assert_allclose(loaded(observations), mean_by_hand(tensors, observations), rtol=1e-5, atol=1e-6)


def test_random_actor_has_the_shapes_of_a_learned_one() -> None:
    shapes = networks.actor_shapes(5, 4, (8, 4))
    tensors = random_actor(5, 2, (8, 4), seed=0)
    assert {name: tensor.shape for name, tensor in tensors.items()} == dict(shapes)
    assert {tensor.dtype for tensor in tensors.values()} == {np.dtype(np.float32)}
    assert layer_count(tensors) == 3


# --- a policy file in use ---------------------------------------------------------------------------------------


def test_one_observation_gives_one_action_and_a_batch_gives_one_each(tmp_path: Path) -> None:
    tensors = save(tmp_path / "p.safetensors", BOX, 3, [-2.0, 0.0], [2.0, 5.0])
    loaded = load_policy(tmp_path / "p.safetensors")
    assert loaded.version == 12
    observations = normal(6, 3)
    expected = mean_by_hand(tensors, observations)
    batch = loaded(observations)
    assert batch.shape == (6, 2)
    np.testing.assert_allclose(batch, expected, rtol=1e-5, atol=1e-6)
    for observation, action in zip(observations, expected, strict=True):
        single = loaded(observation)
        assert single.shape == (2,)
        assert single.dtype == np.float32
        np.testing.assert_allclose(single, action, rtol=1e-5, atol=1e-6)
    assert loaded(observations[:0]).shape == (0, 2)
    np.testing.assert_allclose(loaded(observations[0].tolist()), expected[0], rtol=1e-5, atol=1e-6)


def test_dict_and_tuple_observations(tmp_path: Path) -> None:
    tensors = save(tmp_path / "p.safetensors", ARM, 8, [-1.0], [1.0])
    loaded = load_policy(str(tmp_path / "p.safetensors"))
    joints, goals, modes = normal(4, 3), normal(4, 2, seed=1), np.array([1, 2, 3, 2])
    vectors = np.concatenate([joints, np.eye(3)[modes - 1], goals], axis=1)
    expected = mean_by_hand(tensors, vectors)
    np.testing.assert_allclose(loaded({"goal": goals, "arm": (joints, modes)}), expected, rtol=1e-5, atol=1e-6)
    for i in range(4):
        action = loaded({"arm": (joints[i], int(modes[i])), "goal": goals[i]})
        assert action.shape == (1,)
        np.testing.assert_allclose(action, expected[i], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("action_shape", [(), (1,), (2, 3), (1, 1, 2)])
def test_actions_have_the_shape_of_the_environment(tmp_path: Path, action_shape: tuple[int, ...]) -> None:
    size = int(np.prod(action_shape))
    tensors = save(tmp_path / "p.safetensors", BOX, 3, [-1.0] * size, [1.0] * size, action_shape)
    loaded = load_policy(tmp_path / "p.safetensors")
    observations = normal(5, 3)
    expected = mean_by_hand(tensors, observations)
    assert np.shape(loaded(observations[0])) == action_shape
    assert loaded(observations).shape == (5, *action_shape)
    np.testing.assert_allclose(loaded(observations).reshape(5, size), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("low", "high"), [(-0.4, 0.4), (0.1, 0.3), (-1.0, 1e6), (1e-6, 2e-6), (5.0, 5.0), (-3e38, 3e38)]
)
def test_actions_stay_within_the_range(tmp_path: Path, low: float, high: float) -> None:
    saturated = np.array([100.0, -100.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], np.float32)
    save(
        tmp_path / "p.safetensors",
        BOX,
        3,
        [low] * 4,
        [high] * 4,
        actor__2__weight=np.zeros((16, 8), np.float32),
        actor__2__bias=saturated,
    )
    action = load_policy(tmp_path / "p.safetensors")(np.zeros(3))
    assert (np.float32(low) <= action).all()
    assert (action <= np.float32(high)).all()
    center = (np.float64(low) + np.float64(high)) / 2
    np.testing.assert_allclose(action, [high, low, center, center], rtol=1e-5, atol=1e-6 * (high - low))


def test_observation_that_does_not_fit_is_named(tmp_path: Path) -> None:
    save(tmp_path / "p.safetensors", ARM, 8, [-1.0], [1.0])
    loaded = load_policy(tmp_path / "p.safetensors")
    with pytest.raises(ValueError, match="goal"):
        loaded({"arm": (np.zeros(3), 1), "goal": np.zeros(3)})
    with pytest.raises(ValueError, match="arm"):
        loaded({"goal": np.zeros(2)})


# --- where policies are found -----------------------------------------------------------------------------------


def fill_run(run: Path, best: bool, versions: tuple[int, ...]) -> None:
    for folder in ("best", "weights"):
        (run / folder).mkdir(parents=True)
    for version in versions:
        save(version_path(run / "weights", version), BOX, 3, [-1.0], [1.0], version=str(version))
    if best:
        save(run / "best" / "policy.safetensors", BOX, 3, [-1.0], [1.0], version="5")


@pytest.mark.parametrize(("best", "versions", "chosen"), [(True, (6, 7), 5), (False, (9, 10, 8), 10)])
def test_run_folder_stands_for_its_best_or_newest(
    tmp_path: Path, best: bool, versions: tuple[int, ...], chosen: int
) -> None:
    fill_run(tmp_path / "run", best, versions)
    assert load_policy(tmp_path / "run").version == chosen


def test_folder_of_weights_stands_for_its_newest(tmp_path: Path) -> None:
    fill_run(tmp_path / "run", False, (3, 4))
    assert load_policy(tmp_path / "run" / "weights").version == 4


def test_nothing_to_load_is_said_in_one_line(tmp_path: Path) -> None:
    fill_run(tmp_path / "run", False, ())
    for path in (tmp_path / "run", tmp_path / "elsewhere"):
        with pytest.raises(RunFolderError) as raised:
            load_policy(path)
        assert str(path) in str(raised.value)
        assert "\n" not in str(raised.value)


# --- files that are no policy -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1],
        lambda content: content[:12],
        lambda content: b"\xff" * 8 + content[8:],
        lambda content: content[:8] + b"}" + content[9:],
        lambda _: b"not a policy\n" * 100,
        lambda _: pickle.dumps({"actor.0.weight": [1.0, 2.0]}),
    ],
    ids=["empty", "half", "last-byte", "header-cut", "length", "header", "text", "pickle"],
)
def test_damaged_file_is_refused_in_one_line(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "p.safetensors"
    save(path, BOX, 3, [-1.0], [1.0])
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(RunFolderError, match=r"p\.safetensors") as raised:
        load_policy(path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"observation": None},
        {"observation": "{"},
        {"observation": '{"kind": "graph"}'},
        {"observation": "[]"},
        {"observation": json.dumps({"kind": "box", "shape": [4]})},
        {"action_shape": None},
        {"action_shape": "[2]"},
        {"version": "new"},
        {"policy": "deterministic"},
        {"action_low": None},
        {"action_high": np.ones(2, np.float32)},
        {"actor__1__weight": None},
        {"actor__1__bias": None},
        {"actor__1__weight": np.zeros((16, 15), np.float32)},
        {"actor__1__bias": np.zeros(3, np.float32)},
        {"actor__0__weight": np.zeros((3, 16))},
        {"actor__2__weight": np.zeros((16, 4), np.float32), "actor__2__bias": np.zeros(4, np.float32)},
    ],
    ids=lambda changes: "-".join(f"{name}:{getattr(value, 'shape', value)}" for name, value in changes.items()),
)
def test_file_whose_parts_do_not_fit_is_refused_in_one_line(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "p.safetensors"
    save(path, BOX, 3, [-1.0], [1.0], **changes)
    with pytest.raises(RunFolderError, match=r"p\.safetensors") as raised:
        load_policy(path)
    assert "\n" not in str(raised.value)


# --- discrete actions --------------------------------------------------------------------------------------------


def save_choices(
    path: Path, action: DiscreteActions, changes: dict[str, Any] | None = None, outputs: int = 0
) -> None:
    """Write a policy that takes the last value of each component, whatever it observes."""
    total = outputs or sum(action.choices)
    bias = np.concatenate([np.arange(count, dtype=np.float32) for count in action.choices])[:total]
    tensors = {"actor.0.weight": np.zeros((3, total), np.float32), "actor.0.bias": np.resize(bias, total)}
    about = {"observation": json.dumps(BOX), "policy": "greedy", "version": "1"}
    about["action"] = json.dumps({**asdict(action), **(changes or {})})
    write_weights(path, tensors, about)


SWITCHES = DiscreteActions("multi_discrete", (3, 2), (0, 5), (2,), "int16")


def test_a_discrete_action_is_an_integer(tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    save_choices(path, DiscreteActions("discrete", (4,), (-1,), (), "int64"))
    policy = load_policy(path)
    action = policy(np.zeros(3, np.float32))
    assert (action, type(action)) == (2, int)
    assert policy(np.zeros((5, 3), np.float32)).tolist() == [2] * 5


def test_several_discrete_actions_are_an_array_of_the_environments_type(tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    save_choices(path, SWITCHES)
    action = load_policy(path)(np.zeros(3, np.float32))
    assert (action.tolist(), action.dtype) == ([2, 6], np.int16)
    save_choices(path, DiscreteActions("multi_binary", (2, 2, 2, 2), (0,) * 4, (2, 2), "int8"))
    assert load_policy(path)(np.zeros((3, 3), np.float32)).shape == (3, 2, 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "continuous"},
        {"choices": []},
        {"choices": [3, 0]},
        {"choices": [2**40, 2]},
        {"choices": [3, 3]},
        {"start": [0]},
        {"start": [0, 1.5]},
        {"shape": [3]},
        {"dtype": "float32"},
        {"dtype": "object"},
        {"dtype": "no type"},
    ],
    ids=str,
)
def test_discrete_actions_that_cannot_be_are_refused_in_one_line(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "p.safetensors"
    save_choices(path, SWITCHES, changes)
    with pytest.raises(RunFolderError, match=r"p\.safetensors") as raised:
        load_policy(path)
    assert "\n" not in str(raised.value)


def test_foreign_weights_are_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    write_weights(path, {"model.embed.weight": normal(4, 4)}, {})
    with pytest.raises(RunFolderError, match="not a Spreeze policy"):
        load_policy(path)


def test_policy_without_a_network_is_refused(tmp_path: Path) -> None:
    # Two observations fit one action's mean and deviation even without a layer in between.
    path = tmp_path / "p.safetensors"
    bounds = {"action_low": np.full(1, -1, np.float32), "action_high": np.full(1, 1, np.float32)}
    about = {"observation": json.dumps({"kind": "box", "shape": [2]}), "action_shape": "[1]"}
    write_weights(path, bounds, about)
    with pytest.raises(RunFolderError, match=r"p\.safetensors"):
        load_policy(path)


# --- what it needs ----------------------------------------------------------------------------------------------


def test_acting_needs_neither_torch_nor_gymnasium(tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    save(path, ARM, 8, [-1.0], [1.0])
    program = (
        "import sys, spreeze\n"
        "policy = spreeze.load_policy(sys.argv[1])\n"
        "print(policy({'arm': ([0, 0, 0], 1), 'goal': [0, 0]}).shape)\n"
        "print(sorted({'torch', 'gymnasium'} & set(sys.modules)))\n"
    )
    said = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == ["(1,)", "[]"]
