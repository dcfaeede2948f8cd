"""A policy that acts with NumPy: in samplers, in the evaluator, and in the user's own program.

In: a weights file. Out: actions. Needs neither torch nor Gymnasium.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.weights import read_weights
from spreeze.environments.actions import ActionRange
from spreeze.environments.observations import flatten
from spreeze.errors import RunFolderError
from spreeze.host.files import reason_of
from spreeze.policy.actor import Actor, Array, layer_count, make_actor

MAX_VECTOR = 2**31  # of an observation or action; a policy file that says more is damaged


class Policy:
    """The trained policy: `policy(observation)` gives the action to take, in the environment's own range.

    It reuses its buffers: threads need one each.
    """

    def __init__(self, tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
        self._tensors = tensors
        shape = tuple(json.loads(metadata["action_shape"]))
        self._range = ActionRange(tensors["action_low"], tensors["action_high"], shape)
        self._observation = json.loads(metadata["observation"])
        self.version = int(metadata.get("version", 0))
        self._actor: tuple[int, Actor] | None = None

    def __call__(self, observation: Any) -> NDArray[Any]:
        """Return the action for one observation, or one action each for a batch of them."""
        vectors = flatten(self._observation, observation)
        rows = np.atleast_2d(vectors)
        actions = self._range.from_unit(self.actor(len(rows)).mean(rows))
        return actions if vectors.ndim > 1 else actions[0]

    def actor(self, rows: int) -> Actor:
        """Return the network for this many observations at a time; the last one used is kept."""
        if self._actor is None or self._actor[0] != rows:
            self._actor = (rows, make_actor(self._tensors, rows))
        return self._actor[1]


def load_policy(path: str | Path) -> Policy:
    """Load a policy from a run folder (its best version, or else its newest) or from a weights file.

    No code of the file is run, and what it holds is checked: RunFolderError says in a line what is wrong with it.
    """
    file = find_weights(Path(path))
    try:
        tensors, metadata = read_weights(file)
        _check_bounds(tensors, json.loads(metadata["action_shape"]))
        _check_network(tensors, _checked_size(json.loads(metadata["observation"])), tensors["action_low"].size)
        return Policy(tensors, metadata)
    except FileNotFoundError:
        raise RunFolderError(f"there is no policy file {file}") from None
    except Exception as error:
        raise RunFolderError(f"{file} is not a Spreeze policy, or is damaged: {reason_of(error)}") from error


def find_weights(path: Path) -> Path:
    """Return the weights file that a path stands for."""
    if not path.exists():
        raise RunFolderError(f"there is no run folder or policy file '{path}'")
    if path.is_file():
        return path
    best = path / "best" / "policy.safetensors"
    versions = sorted(path.glob("weights/policy-*.safetensors")) or sorted(path.glob("policy*.safetensors"))
    if best.exists():
        return best
    if versions:
        return versions[-1]
    raise RunFolderError(f"'{path}' holds no policy: name a run folder that has weights/, or a .safetensors file")


def _check_network(tensors: Mapping[str, Array], observation_size: int, action_size: int) -> None:
    width = observation_size
    for i in range(layer_count(tensors)):
        weight, bias = tensors[f"actor.{i}.weight"], tensors[f"actor.{i}.bias"]
        if weight.ndim != 2 or weight.shape[0] != width or bias.shape != weight.shape[1:]:
            raise ValueError(f"layer {i} has shape {weight.shape} after a width of {width}")
        if weight.dtype != np.float32 or bias.dtype != np.float32:
            raise ValueError(f"layer {i} is of type {weight.dtype}, not float32")
        if not weight.size or not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            raise ValueError(f"layer {i} holds a NaN or an infinity, or nothing")
        width = weight.shape[1]
    if not layer_count(tensors) or width not in (action_size, 2 * action_size):
        raise ValueError(f"{layer_count(tensors)} layers with {width} outputs do not fit {action_size} actions")


def _check_bounds(tensors: Mapping[str, NDArray[Any]], shape: Any) -> None:
    low, high = tensors["action_low"], tensors["action_high"]
    if not isinstance(shape, list) or math.prod(map(_extent, shape)) != low.size or not low.size:
        raise ValueError(f"{low.size} bounds do not fit the shape of actions")
    if low.ndim != 1 or low.shape != high.shape or low.dtype != high.dtype or low.dtype.kind not in "fiu":
        raise ValueError("lower and upper bounds of actions do not fit each other")
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        raise ValueError("the bounds of actions are not finite, or the wrong way round")


def _checked_size(encoding: Any) -> int:
    """Return the length of the vector that an observation becomes, of an encoding that may hold anything."""
    kind = encoding["kind"]
    if kind in ("box", "multi_binary"):
        size = math.prod(map(_extent, encoding["shape"]))
    elif kind == "discrete":
        size = _extent(encoding["n"])
        if type(encoding["start"]) is not int or abs(encoding["start"]) > 2**62:  # it is reckoned with in int64
            raise ValueError("a discrete observation starts at no whole number")
    elif kind == "multi_discrete":
        size = sum(map(_extent, encoding["nvec"]))
        if list(map(_extent, encoding["shape"])) != [len(encoding["nvec"])]:
            raise ValueError("the shape of a discrete observation does not fit its parts")
    elif kind == "dict":
        size = sum(map(_checked_size, encoding["parts"].values()))
    elif kind == "tuple":
        size = sum(map(_checked_size, encoding["parts"]))
    else:
        raise ValueError("observations are of an unknown kind")
    return _extent(size)


def _extent(value: Any) -> int:
    if type(value) is not int or not 0 <= value < MAX_VECTOR:
        raise ValueError(f"{value!r:.40} is no size")
    return value
