from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from spreeze.channels.spaces import Encoding, vector_size
from spreeze.environments.observations import flatten
from spreeze.environments.spaces import spaces_of

shapes = st.lists(st.integers(1, 4), max_size=2).map(tuple)


class Declares(gymnasium.Env[Any, Any]):
    """An environment that is never played: it has spaces."""

    def __init__(self, observation_space: spaces.Space[Any]) -> None:
        self.observation_space = observation_space
        self.action_space = spaces.Box(-1.0, 1.0, (1,))


def boxes() -> st.SearchStrategy[spaces.Space[Any]]:
    floats = st.builds(
        lambda shape, dtype, bound: spaces.Box(-bound, bound, shape, dtype),
        shapes,
        st.sampled_from([np.float32, np.float64]),
        st.sampled_from([1.0, 1e3, np.inf]),
    )
    integers = st.builds(lambda shape: spaces.Box(-100, 100, shape, np.int64), shapes)
    memory = st.builds(lambda size: spaces.Box(0, 255, (size,), np.uint8), st.integers(1, 5))
    return st.one_of(floats, integers, memory)


def leaves() -> st.SearchStrategy[spaces.Space[Any]]:
    return st.one_of(
        boxes(),
        st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 6), st.integers(-5, 5)),
        st.builds(spaces.MultiDiscrete, st.lists(st.integers(1, 5), min_size=1, max_size=4)),
        st.builds(spaces.MultiBinary, st.integers(1, 5)),
        st.builds(spaces.MultiBinary, st.lists(st.integers(1, 3), min_size=2, max_size=3)),
    )


names = st.text("abcXYZ_-0 ü", min_size=1, max_size=4)
any_space = st.recursive(
    leaves(),
    lambda part: st.one_of(
        st.builds(spaces.Dict, st.dictionaries(names, part, min_size=1, max_size=3)),
        st.builds(spaces.Tuple, st.lists(part, min_size=1, max_size=3)),
    ),
    max_leaves=6,
)


def encoding_of(space: spaces.Space[Any]) -> Encoding:
    """The encoding as a policy file holds it: after JSON."""
    encoding: Encoding = json.loads(json.dumps(spaces_of(Declares(space), "test").observation))
    return encoding


def stack(space: spaces.Space[Any], observations: list[Any]) -> Any:
    """Batch observations the way Gymnasium's vector environments do."""
    if isinstance(space, spaces.Dict):
        return {key: stack(part, [one[key] for one in observations]) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(stack(part, [one[i] for one in observations]) for i, part in enumerate(space))
    return np.stack(observations)


@settings(deadline=None, max_examples=200)
@given(any_space, st.integers(0, 2**31))
def test_vector_is_that_of_gymnasium(space: spaces.Space[Any], seed: int) -> None:
    space.seed(seed)
    observation = space.sample()
    expected = np.asarray(spaces.flatten(space, observation), np.float32)
    encoding = encoding_of(space)
    vector = flatten(encoding, observation)
    assert vector.dtype == np.float32
    assert vector.shape == (vector_size(encoding),)
    np.testing.assert_array_equal(vector, expected)


@settings(deadline=None, max_examples=200)
@given(any_space, st.integers(0, 2**31), st.integers(1, 4))
def test_batch_is_the_stack_of_its_observations(space: spaces.Space[Any], seed: int, count: int) -> None:
    space.seed(seed)
    observations = [space.sample() for _ in range(count)]
    encoding = encoding_of(space)
    batch = flatten(encoding, stack(space, observations))
    singles = np.stack([flatten(encoding, observation) for observation in observations])
    assert batch.dtype == np.float32
    np.testing.assert_array_equal(batch, singles)


def test_lists_and_plain_numbers_are_observations_too() -> None:
    encoding = encoding_of(
        spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3), "c": spaces.Box(0, 1, ())})
    )
    vector = flatten(encoding, {"a": [0.5, -0.5], "b": 1, "c": 0.25})
    assert vector.tolist() == [0.5, -0.5, 0.0, 1.0, 0.0, 0.25]


def test_order_of_a_dict_is_that_of_the_space_not_of_the_observation() -> None:
    encoding = encoding_of(spaces.Dict({"z": spaces.Box(-1, 1, (1,)), "a": spaces.Box(-1, 1, (1,))}))
    assert (
        flatten(encoding, {"z": [1.0], "a": [2.0]}).tolist() == flatten(encoding, {"a": [2.0], "z": [1.0]}).tolist()
    )


def test_parts_that_the_space_does_not_know_are_left_out() -> None:
    encoding = encoding_of(spaces.Dict({"a": spaces.Box(-1, 1, (1,))}))
    assert flatten(encoding, {"a": [1.0], "debug": "text"}).tolist() == [1.0]


ROBOT = spaces.Dict(
    {
        "arm": spaces.Tuple((spaces.Box(-1, 1, (3,)), spaces.Discrete(4, start=2))),
        "legs": spaces.MultiDiscrete([2, 3]),
        "height": spaces.Box(0, 1, ()),
    }
)
FITTING = {"arm": (np.zeros(3), 2), "legs": np.array([0, 1]), "height": 0.5}


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("'arm'", {"arm": None}),
        (r"\['arm'\]\[0\]", {"arm": (np.zeros(4), 2)}),
        (r"\['arm'\]\[0\]", {"arm": (np.zeros((2, 2, 3)), 2)}),
        (r"\['arm'\].* 1", {"arm": (np.zeros(3),)}),
        (r"\['arm'\]\[1\]", {"arm": (np.zeros(3), 1)}),
        (r"\['arm'\]\[1\]", {"arm": (np.zeros(3), 6)}),
        (r"\['legs'\]", {"legs": np.array([0, 3])}),
        (r"\['legs'\]", {"legs": np.array([-1, 0])}),
        (r"\['legs'\]", {"legs": np.array([0, 1, 0])}),
        (r"\['height'\]", {"height": np.zeros((2, 2))}),
    ],
)
def test_misfit_names_its_part(part: str, change: dict[str, Any]) -> None:
    encoding = encoding_of(ROBOT)
    assert flatten(encoding, FITTING).shape == (vector_size(encoding),)
    with pytest.raises(ValueError, match=part):
        flatten(encoding, FITTING | change)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        (r"\['arm'\]\[1\]", {"arm": (np.zeros(3), 2.5)}),
        (r"\['arm'\]\[0\]", {"arm": ([1.0, [2.0, 3.0], 4.0], 2)}),
        (r"\['arm'\]\[0\]", {"arm": (["a", "b", "c"], 2)}),
        (r"\['legs'\]", {"legs": np.array([0.0, 1.0])}),
        (r"\['height'\]", {"height": {"value": 0.5}}),
    ],
    ids=["fraction-for-discrete", "ragged", "text", "floats-for-multi-discrete", "dict-for-number"],
)
def test_value_of_the_wrong_kind_names_its_part(part: str, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=part):
        flatten(encoding_of(ROBOT), FITTING | change)


def test_missing_part_is_named() -> None:
    with pytest.raises(ValueError, match="'legs'"):
        flatten(encoding_of(ROBOT), {"arm": FITTING["arm"], "height": 0.5})


@pytest.mark.parametrize("observation", [np.zeros(3), None, 5, [1, 2]])
def test_other_than_a_dict_where_a_dict_belongs(observation: Any) -> None:
    with pytest.raises(ValueError, match="'arm'"):
        flatten(encoding_of(ROBOT), observation)


def test_batch_in_one_part_only_is_a_misfit() -> None:
    with pytest.raises(ValueError, match="batch"):
        flatten(encoding_of(ROBOT), FITTING | {"height": np.array([0.5, 0.5])})


def test_batches_of_different_lengths_are_a_misfit() -> None:
    encoding = encoding_of(spaces.Tuple((spaces.Box(0, 1, (1,)), spaces.Box(0, 1, (1,)))))
    with pytest.raises(ValueError, match="batch"):
        flatten(encoding, (np.zeros((2, 1)), np.zeros((3, 1))))
