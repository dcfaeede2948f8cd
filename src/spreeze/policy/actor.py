"""Computes actions with NumPy, for a fixed number of observations at a time.

In: the tensors and metadata of a weights file. Out: actions in [-1, 1], or the index of the value of each component.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.spaces import Actions, DiscreteActions, Spaces
from spreeze.errors import RunFolderError
from spreeze.policy.action_format import action_of, describe_actions

Array = NDArray[np.float32]
PolicyKind = Literal["gaussian", "deterministic", "greedy", "categorical"]
KINDS: tuple[PolicyKind, ...] = get_args(PolicyKind)
# Bounds of the log standard deviation. The learner's actor is clipped to the same ones, by `split_gaussian` in
# algorithms/kernels/operations.py; a test compares them.
LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0
# Up to about this many multiplications, OpenBLAS computes a product without copying both factors first: 32 rows
# through a 256x256 layer take 39 us in blocks of 8, and 50 us as one product.
SMALL_PRODUCT = 2**19


class Actor(Protocol):
    """Maps a fixed number of observations to actions."""

    def mean(self, observations: Array) -> NDArray[Any]:
        """Return the actions without exploration, (rows, action_size)."""
        ...

    def sample(self, observations: Array, noise: NDArray[Any]) -> NDArray[Any]:
        """Return actions that explore; noise: of `sampling/exploration.py`, scaled by how much to explore."""
        ...


def make_actor(tensors: Mapping[str, Array], metadata: Mapping[str, str], rows: int) -> Actor:
    """Return the actor of a weights file, for this many observations at a time."""
    kind = policy_kind(tensors, metadata)
    if kind == "gaussian":
        return GaussianActor(tensors, rows)
    if kind == "deterministic":
        return DeterministicActor(tensors, rows)
    action = action_of(tensors, metadata)
    assert isinstance(action, DiscreteActions), f"a {kind} policy chooses"
    return (GreedyActor if kind == "greedy" else CategoricalActor)(tensors, rows, action.choices)


def policy_kind(tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> PolicyKind:
    """Return the kind of policy that a weights file names; RunFolderError if it names one that is not known here."""
    named = metadata.get("policy")
    if named is None:
        return _kind_before_it_was_named(tensors)
    for kind in KINDS:
        if named == kind:
            return kind
    known = f"{', '.join(KINDS[:-1])} and {KINDS[-1]}"
    raise RunFolderError(
        f"its policy is of kind {named!r:.40}, and this version of Spreeze knows only {known}: use a newer version"
    )


def _kind_before_it_was_named(tensors: Mapping[str, Array]) -> PolicyKind:
    """Recognise the policy of a file from version 0.1, whose metadata does not name the kind.

    A deterministic actor has one output for each component of an action; a Gaussian one has two, mean and log
    standard deviation.
    """
    outputs = tensors[f"actor.{layer_count(tensors) - 1}.bias"].size
    return "deterministic" if outputs == tensors["action_low"].size else "gaussian"


def outputs_of(kind: PolicyKind, action: Actions, atoms: int) -> int:
    """Return how many numbers the network of a policy gives; 0 if this kind of policy has no such actions."""
    if isinstance(action, DiscreteActions):
        return sum(action.choices) * atoms if kind in ("greedy", "categorical") else 0
    return {"gaussian": 2 * action.size, "deterministic": action.size}.get(kind, 0)


class _Network:
    """A ReLU network with buffers for a fixed number of observations."""

    def __init__(self, tensors: Mapping[str, Array], rows: int) -> None:
        layers = layer_count(tensors)
        self._weights = [np.ascontiguousarray(tensors[f"actor.{i}.weight"]) for i in range(layers)]
        # relu(x + b) = max(x, -b) + b, and the b outside the maximum can be folded into the next layer's bias: that
        # saves one pass over the activations in each hidden layer.
        shifts = [tensors["actor.0.bias"].astype(np.float64)]
        for i in range(1, layers):
            shifts.append(tensors[f"actor.{i}.bias"] + shifts[-1] @ self._weights[i])
        self._floors = [(-shift).astype(np.float32) for shift in shifts[:-1]]
        self._output_bias = shifts[-1].astype(np.float32)
        # Buffers that each pass overwrites: allocating them costs as much as small products do.
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
    """A tanh-squashed Gaussian policy: the network gives mean and log standard deviation."""

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
    """One action for each observation, to which exploration adds noise."""

    def mean(self, observations: Array) -> Array:
        """Return the action in [-1, 1], (rows, action_size)."""
        return np.tanh(self.forward(observations))

    def sample(self, observations: Array, noise: Array) -> Array:
        """Return the action plus noise, clipped to [-1, 1], (rows, action_size)."""
        action = self.mean(observations)
        action += noise
        return np.clip(action, -1.0, 1.0, out=action)


class _ChoosingActor(_Network):
    """A policy for discrete actions: the network gives a number for each value of each component."""

    def __init__(self, tensors: Mapping[str, Array], rows: int, choices: tuple[int, ...]) -> None:
        super().__init__(tensors, rows)
        self._atoms = tensors.get("atoms")
        """Where critics are distributional, the values that a distribution is over."""
        ends = [0, *accumulate(choices)]
        self._components = [slice(*pair) for pair in pairwise(ends)]

    def mean(self, observations: Array) -> NDArray[np.int32]:
        """Return the best or most likely choices, (rows, components)."""
        return self._highest(self._scores(observations))

    def _scores(self, observations: Array) -> Array:
        output = self.forward(observations)
        if self._atoms is None:
            return output
        logits = output.reshape(len(output), -1, len(self._atoms))
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        scores: Array = (weights @ self._atoms) / weights.sum(-1)
        return scores

    def _highest(self, scores: Array) -> NDArray[np.int32]:
        chosen = np.empty((len(scores), len(self._components)), np.int32)
        for i, component in enumerate(self._components):
            chosen[:, i] = scores[:, component].argmax(axis=1)
        return chosen


class GreedyActor(_ChoosingActor):
    """The choices that are worth most, some of which exploration replaces."""

    def sample(self, observations: Array, noise: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the best choices, and those of the noise where it is not negative, (rows, components)."""
        return np.where(noise < 0, self.mean(observations), noise)


class CategoricalActor(_ChoosingActor):
    """The network gives the log probability of each choice, up to a constant."""

    def sample(self, observations: Array, noise: Array) -> NDArray[np.int32]:
        """Return choices drawn from the policy with Gumbel noise, (rows, values): see Maddison et al. 2014."""
        return self._highest(self._scores(observations) + noise)


def _row_blocks(rows: int, weight: Array) -> list[slice]:
    """Split rows so that each product stays below SMALL_PRODUCT."""
    block = max(1, SMALL_PRODUCT // weight.size)
    return [slice(begin, min(begin + block, rows)) for begin in range(0, rows, block)]


def layer_count(tensors: Mapping[str, Array]) -> int:
    """Return the number of layers of the actor in a weights file."""
    return sum(name.startswith("actor.") and name.endswith(".weight") for name in tensors)


def random_actor(
    observation_size: int, action_size: int, hidden: tuple[int, ...], seed: int, choices: tuple[int, ...] = ()
) -> dict[str, Array]:
    """Return the weights of an untrained Gaussian actor, for measurements that need a policy but no learner.

    choices: how many values each component has, for a categorical actor.
    """
    rng = np.random.default_rng(seed)
    widths = (observation_size, *hidden, sum(choices) or 2 * action_size)
    tensors: dict[str, Array] = {}
    for i, (fan_in, fan_out) in enumerate(pairwise(widths)):
        bound = fan_in**-0.5
        tensors[f"actor.{i}.weight"] = rng.uniform(-bound, bound, (fan_in, fan_out)).astype(np.float32)
        tensors[f"actor.{i}.bias"] = rng.uniform(-bound, bound, fan_out).astype(np.float32)
    return tensors


def random_policy(
    spaces: Spaces, kind: PolicyKind, hidden: tuple[int, ...], seed: int
) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return the tensors and metadata of an untrained policy for an environment, as a weights file has them."""
    bounds, about = describe_actions(spaces.action)
    actor = random_actor(spaces.observation_size, spaces.action_size, hidden, seed, spaces.choices)
    return {**actor, **bounds}, {**about, "policy": kind}
