"""What a checkpoint records of an environment: everything that makes two of them differ, in little space."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control.pendulum import PendulumEnv

from spreeze.config.env_spec import EnvSpec
from spreeze.environments.description import describe_array, describe_environment, describe_space
from spreeze.environments.facts import find_facts
from spreeze.environments.make import make_env
from spreeze.host.json_text import json_text

NAN, INF = float("nan"), float("inf")


def described(spec: EnvSpec) -> dict[str, Any]:
    env = make_env(spec)
    env.close()
    return describe_environment(env, spec)


def test_an_environment_is_described_with_id_arguments_packages_and_spaces() -> None:
    assert described(EnvSpec("Pendulum-v1", kwargs={"g": 5.0})) == {
        "id": "Pendulum-v1",
        "kwargs": {"g": 5.0},
        "packages": {"gymnasium": gymnasium.__version__},
        "observation": {
            "kind": "Box",
            "shape": [3],
            "dtype": "float32",
            "low": [-1.0, -1.0, -8.0],
            "high": [1.0, 1.0, 8.0],
        },
        "action": {"kind": "Box", "shape": [1], "dtype": "float32", "low": -2.0, "high": 2.0},
    }


def test_the_package_that_simulates_a_robot_is_described_too() -> None:
    mujoco = pytest.importorskip("mujoco")
    assert described(EnvSpec("InvertedPendulum-v5"))["packages"] == {
        "gymnasium": gymnasium.__version__,
        "mujoco": mujoco.__version__,
    }


def test_a_callable_that_passes_arguments_to_gymnasium_is_described_with_them() -> None:
    passing = EnvSpec("f()", factory=lambda: gymnasium.make("Pendulum-v1", g=3.0, render_mode="rgb_array"))
    found = described(passing)
    assert (found["id"], found["kwargs"]) == ("Pendulum-v1", {"g": 3.0})


def test_a_class_has_no_id() -> None:
    found = described(EnvSpec("PendulumEnv()", kwargs={"g": 3.0}, factory=PendulumEnv))
    assert (found["id"], found["kwargs"]) == (None, {"g": 3.0})


def test_arguments_that_are_no_json_are_named_by_their_types_and_long_ones_are_digests() -> None:
    found = []
    for _ in range(2):  # another object each time, at another address
        reward = object()
        spec = EnvSpec("f()", kwargs={"reward": reward, "map": list(range(5000))}, factory=lambda **_: PendulumEnv())
        found.append(described(spec)["kwargs"])
    assert found[0] == found[1]
    assert found[0]["reward"] == "<builtins.object>"
    assert set(found[0]["map"]) == {"characters", "sha256"}


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.full((3, 2), -1.0, np.float32), -1.0),
        (np.full(1000, INF), "inf"),
        (np.full(3, NAN), "nan"),
        (np.array([1.0, NAN, -INF, -0.0]), [1.0, "nan", "-inf", 0.0]),
        (np.array([0.1], np.float32), 0.10000000149011612),
        (np.array([2**62 + 1, 3]), [2**62 + 1, 3]),
        (np.zeros(0), []),
    ],
)
def test_bounds_are_exact_and_uniform_ones_are_one_number(array: Any, expected: Any) -> None:
    found = describe_array(array)
    assert found == expected
    assert json.loads(json_text(found)) == expected


def test_long_bounds_are_digests_that_differ_where_a_number_does() -> None:
    bounds = np.linspace(-1, 1, 100_000)
    bounds[7] = NAN
    found = describe_array(bounds)
    assert len(json_text(found)) < 200
    assert (found["numbers"], found["lowest"], found["highest"]) == (100_000, -1.0, 1.0)
    assert describe_array(bounds.copy()) == found
    bounds[50_000] = np.nextafter(bounds[50_000], 1)
    assert describe_array(bounds) != found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (spaces.Discrete(3), spaces.Discrete(3, start=1)),
        (spaces.Discrete(3), spaces.Discrete(4)),
        (spaces.MultiBinary(3), spaces.MultiBinary(4)),
        (spaces.MultiDiscrete([3, 4]), spaces.MultiDiscrete([3, 5])),
        (spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (2, 1))),
        (spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (2,), np.float64)),
        (spaces.Box(-1, 1, (2,)), spaces.Box(np.array([-1, -1]), np.array([1, 2]), dtype=np.float32)),
        (spaces.Tuple([spaces.Discrete(3)]), spaces.Tuple([spaces.Discrete(3), spaces.Discrete(3)])),
        (spaces.Dict({"a": spaces.Discrete(3)}), spaces.Dict({"b": spaces.Discrete(3)})),
    ],
)
def test_spaces_that_differ_are_described_differently(one: spaces.Space[Any], other: spaces.Space[Any]) -> None:
    assert describe_space(one) == describe_space(one) != describe_space(other)


def test_a_property_that_raises_is_no_reason_not_to_train() -> None:
    class Broken(PendulumEnv):
        @property
        def unwrapped(self) -> Any:
            raise RuntimeError("not before reset")

    facts = find_facts(EnvSpec("Broken()", factory=Broken))
    assert facts.description["packages"] == {"gymnasium": gymnasium.__version__}
