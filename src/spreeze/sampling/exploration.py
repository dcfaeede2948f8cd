"""The randomness of a sampler's actions: uniform actions before there is a policy, scaled noise afterwards.

What the noise is depends on the kind of policy: normal for numbers; random choices now and then, or Gumbel noise,
for choices.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.spaces import Spaces
from spreeze.config import PolicyKind, SamplingConfig
from spreeze.host.json_text import json_text

NOISE_STEPS = 64
GOLDEN_RATIO = (5**0.5 - 1) / 2


class Exploration:
    """Draws for all environments of one sampler."""

    def __init__(self, scale: NDArray[np.float32], action_size: int, rng: np.random.Generator) -> None:
        """scale: of each environment's noise, (envs, 1)."""
        self._scale, self._shape, self._rng = scale, (len(scale), action_size), rng
        self._block: NDArray[Any] | None = None
        self._used = 0
        self._random_before: Any = None  # the generator's state before the block was drawn
        self.noise = self._scaled_noise()
        """Noise for one step after the other, as `Actor.sample` takes it."""

    def uniform_actions(self) -> NDArray[Any]:
        """Return actions for the random warm-up."""
        return self._rng.uniform(-1.0, 1.0, self._shape).astype(np.float32)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return from where another one can draw the same numbers."""
        before = self._rng.bit_generator.state if self._block is None else self._random_before
        about = {"random": _plain(before), "used": None if self._block is None else self._used}
        return {"exploration": np.frombuffer(json_text(about).encode(), np.uint8)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state."""
        about = json.loads(state["exploration"].tobytes())
        self._rng.bit_generator.state = _with_arrays(about["random"])
        if about["used"] is not None:
            self._draw()
            self._used = int(about["used"])

    def _scaled_noise(self) -> Iterator[NDArray[Any]]:
        while True:
            if self._block is None or self._used == NOISE_STEPS:
                self._draw()
            assert self._block is not None
            self._used += 1
            yield self._block[self._used - 1]

    def _draw(self) -> None:
        # For many steps at once: each call costs more than its numbers do.
        self._random_before, self._used = self._rng.bit_generator.state, 0
        self._block = self._draw_block()

    def _draw_block(self) -> NDArray[Any]:
        """Return normal noise, (steps, envs, action_size)."""
        block = self._rng.standard_normal((NOISE_STEPS, *self._shape), dtype=np.float32)
        block *= self._scale
        return block


class ChoiceExploration(Exploration):
    """Draws for discrete actions."""

    def __init__(
        self, scale: NDArray[np.float32], choices: tuple[int, ...], rng: np.random.Generator, policy_kind: PolicyKind
    ) -> None:
        """scale: the probability of a random choice, or a factor on Gumbel noise, (envs, 1)."""
        super().__init__(scale, len(choices), rng)
        self._choices, self._policy_kind = choices, policy_kind

    def uniform_actions(self) -> NDArray[np.int32]:
        """Return choices for the random warm-up."""
        return self._rng.integers(0, self._choices, self._shape, np.int32)

    def _draw_block(self) -> NDArray[Any]:
        """Return random choices, -1 where the policy chooses; or Gumbel noise for each value."""
        if self._policy_kind == "categorical":
            shape = (NOISE_STEPS, self._shape[0], sum(self._choices))
            return (self._rng.gumbel(size=shape) * self._scale).astype(np.float32)
        shape = (NOISE_STEPS, *self._shape)
        drawn = self._rng.integers(0, self._choices, shape, np.int32)
        drawn[self._rng.random(shape, np.float32) >= self._scale] = -1
        return drawn


def make_exploration(
    sampling: SamplingConfig,
    index: int,
    count: int,
    spaces: Spaces,
    policy_kind: PolicyKind,
    rng: np.random.Generator,
) -> Exploration:
    """Return what one sampler explores with."""
    scale = noise_scale(sampling, index, count, policy_kind)
    if spaces.choices:
        return ChoiceExploration(scale, spaces.choices, rng, policy_kind)
    return Exploration(scale, spaces.action_size, rng)


def noise_scale(
    sampling: SamplingConfig, index: int, count: int, policy_kind: PolicyKind = "gaussian"
) -> NDArray[np.float32]:
    """Return how much noise each environment explores with, spread evenly over all samplers (Horgan et al. 2018).

    Probabilities of random choices are spread evenly by their logarithms, as there.
    """
    low, high = float(sampling.exploration), float(sampling.exploration_high)
    # Multiples of the golden ratio leave no gap, however many there will be.
    places = (np.arange(index * count, (index + 1) * count) * GOLDEN_RATIO) % 1.0
    if policy_kind == "greedy" and low > 0:
        return (low * (high / low) ** places).astype(np.float32)[:, None]
    return (low + (high - low) * places).astype(np.float32)[:, None]


def _plain(state: Any) -> Any:
    """Return a generator's state as JSON can hold it."""
    if isinstance(state, Mapping):
        return {name: _plain(value) for name, value in state.items()}
    return state.tolist() if isinstance(state, np.ndarray | np.generic) else state


def _with_arrays(state: Any) -> Any:
    """Return a generator's state as NumPy takes it."""
    if isinstance(state, Mapping):
        return {name: _with_arrays(value) for name, value in state.items()}
    return np.array(state, np.uint64) if isinstance(state, list) else state
