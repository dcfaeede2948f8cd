"""A policy that acts with NumPy: in samplers, in the evaluator, and in the user's own program.

In: a weights file. Out: actions. Needs neither torch nor Gymnasium.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spreeze.actions import ActionRange
from spreeze.channels.weights import MAX_FILE_BYTES, read_weights
from spreeze.errors import ConfigError, RunFolderError
from spreeze.files import read_bounded, reason_of, write_whole
from spreeze.observations import flatten

Array = NDArray[np.float32]

# Bounds of the log standard deviation; the actor in algorithms/networks.py clips to the same.
LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0

# Up to about this many multiplications OpenBLAS does a product without first copying both factors: 32 rows through a
# 256x256 layer take 39 us in blocks of 8 and 50 us at once.
SMALL_PRODUCT = 2**19
MAX_VECTOR = 2**31  # of an observation or action; a policy file that says more is damaged


class Actor(Protocol):
    """What acts, for a fixed number of observations at a time."""

    def mean(self, observations: Array) -> Array:
        """Return the action to take, in [-1, 1], (rows, action_size)."""
        ...

    def sample(self, observations: Array, noise: Array) -> Array:
        """Return an action to explore with, in [-1, 1], by standard normal noise that may be scaled."""
        ...


def make_actor(tensors: Mapping[str, Array], rows: int) -> Actor:
    """Return the actor of a weights file: deterministic if it gives one number for each component of an action."""
    outputs = tensors[f"actor.{layer_count(tensors) - 1}.bias"].size
    kind = DeterministicActor if outputs == tensors["action_low"].size else GaussianActor
    return kind(tensors, rows)


class _Network:
    """A ReLU network with buffers for a fixed number of observations at a time."""

    def __init__(self, tensors: Mapping[str, Array], rows: int) -> None:
        layers = layer_count(tensors)
        self._weights = [np.ascontiguousarray(tensors[f"actor.{i}.weight"]) for i in range(layers)]
        # relu(x + b) = max(x, -b) + b, and what is added can be added to the next layer's bias beforehand: one pass
        # over the activations less for each hidden layer.
        shifts = [tensors["actor.0.bias"].astype(np.float64)]
        for i in range(1, layers):
            shifts.append(tensors[f"actor.{i}.bias"] + shifts[-1] @ self._weights[i])
        self._floors = [(-shift).astype(np.float32) for shift in shifts[:-1]]
        self._output_bias = shifts[-1].astype(np.float32)
        # Buffers that are written anew at each pass: allocating them costs as much as small products do.
        self._outputs = [np.empty((rows, weight.shape[1]), np.float32) for weight in self._weights]
        self._blocks = [_row_blocks(rows, weight) for weight in self._weights]
        self.outputs = len(self._output_bias)

    def forward(self, observations: Array) -> Array:
        x = observations
        for i, weight in enumerate(self._weights):
            output = self._outputs[i]
            for block in self._blocks[i]:
                np.dot(x[block], weight, out=output[block])
            if i < len(self._floors):
                np.maximum(output, self._floors[i], out=output)
            x = output
        x += self._output_bias
        return x


class GaussianActor(_Network):
    """A tanh-squashed Gaussian."""

    def __init__(self, tensors: Mapping[str, Array], rows: int) -> None:
        super().__init__(tensors, rows)
        self._action_size = self.outputs // 2

    def mean(self, observations: Array) -> Array:
        """Return the most likely action in [-1, 1], (rows, action_size)."""
        return np.tanh(self.forward(observations)[:, : self._action_size])

    def sample(self, observations: Array, noise: Array) -> Array:
        """Return an action in [-1, 1] drawn from the policy with standard normal noise, (rows, action_size)."""
        output = self.forward(observations)
        std = np.maximum(output[:, self._action_size :], LOG_STD_MIN)
        np.minimum(std, LOG_STD_MAX, out=std)
        np.exp(std, out=std)
        std *= noise
        std += output[:, : self._action_size]
        return np.tanh(std, out=std)


class DeterministicActor(_Network):
    """One action for each observation; noise is added to it."""

    def mean(self, observations: Array) -> Array:
        """Return the action in [-1, 1], (rows, action_size)."""
        return np.tanh(self.forward(observations))

    def sample(self, observations: Array, noise: Array) -> Array:
        """Return the action with noise of the scale that it has, within [-1, 1], (rows, action_size)."""
        action = self.mean(observations)
        action += noise
        return np.clip(action, -1.0, 1.0, out=action)


def _row_blocks(rows: int, weight: Array) -> list[slice]:
    """Split rows so that each product stays below SMALL_PRODUCT."""
    block = max(1, SMALL_PRODUCT // weight.size)
    return [slice(begin, min(begin + block, rows)) for begin in range(0, rows, block)]


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


def export_policy(run: Path, out: Path) -> None:
    """Copy the policy of a run into one file that `load_policy` can use anywhere."""
    file = find_weights(run)
    load_policy(file)  # a damaged file is noticed here and not on the robot
    if out.exists():
        raise ConfigError(f"--out {out} already exists: name another file")
    try:
        write_whole(out, read_bounded(file, MAX_FILE_BYTES))
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be written: {error.strerror}") from None
    print(f"{out}: version {load_policy(out).version} of {run}")
    print(f'Use it with: spreeze.load_policy("{out}")(observation)')


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


def layer_count(tensors: Mapping[str, Array]) -> int:
    """Return the number of layers of the actor in a weights file."""
    return sum(name.startswith("actor.") and name.endswith(".weight") for name in tensors)


def random_actor(observation_size: int, action_size: int, hidden: tuple[int, ...], seed: int) -> dict[str, Array]:
    """Return untrained actor weights, for measurements that need a policy but no learner."""
    rng = np.random.default_rng(seed)
    widths = (observation_size, *hidden, 2 * action_size)
    tensors: dict[str, Array] = {}
    for i, (fan_in, fan_out) in enumerate(pairwise(widths)):
        bound = fan_in**-0.5
        tensors[f"actor.{i}.weight"] = rng.uniform(-bound, bound, (fan_in, fan_out)).astype(np.float32)
        tensors[f"actor.{i}.bias"] = rng.uniform(-bound, bound, fan_out).astype(np.float32)
    return tensors


# --- what a file must hold --------------------------------------------------------------------------------------


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
