"""Checks that the spaces of an environment are supported, and describes them.

In: a Gymnasium environment. Out: its `Spaces`, or an error that says what is not supported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from spreeze.channels.spaces import Actions, ContinuousActions, DiscreteActions, Encoding, Spaces, vector_size
from spreeze.errors import EnvironmentSetupError

SUPPORTED = (
    "Spreeze takes Box actions with finite bounds, Discrete, MultiDiscrete and MultiBinary ones; "
    "Box, Dict and Tuple observations that are not images"
)
# What can be a picture. MiniGrid's 7x7x3 of object numbers, matrices and boards of games are smaller: vectors.
CHANNELS = (1, 3, 4)
MIN_SIDE, MIN_SIDE_OF_BYTES = 8, 16
IMAGE_RULE = (
    f"an image is a uint8 array with two axes of {MIN_SIDE_OF_BYTES} or more, or an array whose first or last axis "
    f"has 1, 3 or 4 channels and two other axes {MIN_SIDE} or more; if it is none, flatten it"
)


def spaces_of(env: gymnasium.Env[Any, Any], name: str) -> Spaces:
    """Check that the environment's spaces are supported, and describe them."""
    action = _actions_of(env.action_space, name)
    encoding = _encode(env.observation_space, name)
    if vector_size(encoding) == 0 or action.size == 0:
        raise EnvironmentSetupError(f"{name} has an empty observation or action space. {SUPPORTED}.")
    return Spaces(encoding, action)


def _actions_of(space: spaces.Space[Any], name: str) -> Actions:
    match space:
        case spaces.Box():
            return _continuous(space, name)
        case spaces.Discrete():
            return DiscreteActions("discrete", (int(space.n),), (int(space.start),), (), space.dtype.str)
        case spaces.MultiDiscrete():
            choices, start = space.nvec.ravel().tolist(), np.ravel(space.start).tolist()
            return DiscreteActions("multi_discrete", tuple(choices), tuple(start), space.nvec.shape, space.dtype.str)
        case spaces.MultiBinary():
            size = int(np.prod(space.shape, dtype=np.int64))
            return DiscreteActions("multi_binary", (2,) * size, (0,) * size, space.shape, space.dtype.str)
        case spaces.Dict() | spaces.Tuple():
            raise EnvironmentSetupError(
                f"{name} has {type(space).__name__} actions: wrap it so that they are one Box, or one MultiDiscrete "
                f"(gymnasium.ActionWrapper). {SUPPORTED}."
            )
    raise EnvironmentSetupError(f"{name} has {type(space).__name__} actions. {SUPPORTED}.")


def _continuous(space: spaces.Box, name: str) -> ContinuousActions:
    if not np.issubdtype(space.dtype, np.floating):
        raise EnvironmentSetupError(f"{name} has Box actions of type {space.dtype}, not float. {SUPPORTED}.")
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise EnvironmentSetupError(
            f"{name} has unbounded actions: wrap it in gymnasium.wrappers.RescaleAction or ClipAction "
            f"to give them bounds. {SUPPORTED}."
        )
    return ContinuousActions(space.low.ravel(), space.high.ravel(), tuple(int(axis) for axis in space.shape))


def is_image(space: spaces.Box) -> bool:
    """Return whether an array can be a picture, or a stack of some, by IMAGE_RULE."""
    if space.dtype == np.uint8 and _axes_of(MIN_SIDE_OF_BYTES, space.shape) >= 2:
        return True
    if len(space.shape) < 3:
        return False
    (first, *after), (*before, last) = space.shape, space.shape
    return (first in CHANNELS and _axes_of(MIN_SIDE, after) >= 2) or (
        last in CHANNELS and _axes_of(MIN_SIDE, before) >= 2
    )


def _axes_of(least: int, shape: Sequence[int]) -> int:
    return sum(axis >= least for axis in shape)


def _encode(space: spaces.Space[Any], name: str) -> Encoding:
    match space:
        case spaces.Box():
            if is_image(space):
                raise EnvironmentSetupError(
                    f"{name} observes images of shape {space.shape} ({IMAGE_RULE}). {SUPPORTED}."
                )
            return {"kind": "box", "shape": [int(axis) for axis in space.shape]}
        case spaces.Discrete():
            return {"kind": "discrete", "n": int(space.n), "start": int(space.start)}
        case spaces.MultiBinary():
            return {"kind": "multi_binary", "shape": [int(axis) for axis in space.shape]}
        case spaces.MultiDiscrete() if len(space.shape) == 1 and not np.any(space.start):
            return {
                "kind": "multi_discrete",
                "shape": list(space.shape),
                "nvec": [int(n) for n in space.nvec],
            }
        case spaces.Dict():
            return {"kind": "dict", "parts": {key: _encode(part, name) for key, part in space.items()}}
        case spaces.Tuple():
            return {"kind": "tuple", "parts": [_encode(part, name) for part in space]}
    raise EnvironmentSetupError(f"{name} has {type(space).__name__} observations. {SUPPORTED}.")
