"""Steps several environments together with EnvPool, in C++.

In: an `EnvSpec` with an EnvPool id. Out: `Environments` with the same rows as Gymnasium's. By itself, EnvPool takes a
step to start a new episode, and reports an episode as truncated that terminates at its very last step.
"""

from __future__ import annotations

import difflib
import importlib.util
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.spaces import DiscreteActions, Spaces
from spreeze.config.env_spec import CALLABLE_MARK, EnvSpec
from spreeze.environments import optional_packages
from spreeze.environments.description import Description, describe_environment
from spreeze.environments.make import make_env, spec_for_evaluation
from spreeze.environments.observations import Vectors, flatten
from spreeze.environments.spaces import spaces_of
from spreeze.environments.stepped import Stepped
from spreeze.errors import EnvironmentSetupError, SpreezeError, one_line
from spreeze.host.json_text import json_text

THREADS = 1  # per sampler: the samplers themselves run in parallel
SEED_MASK = 2**31 - 1  # EnvPool's seeds are signed 32-bit integers


def check_installed(spec: EnvSpec) -> None:
    """Raise unless EnvPool is installed. Its ids are checked later: importing it takes a second."""
    if spec.factory is not None or spec.name.endswith(CALLABLE_MARK):
        raise EnvironmentSetupError("--backend envpool needs an EnvPool id: a callable is stepped by Gymnasium")
    if importlib.util.find_spec(optional_packages.ENVPOOL.module) is None:
        raise optional_packages.missing(optional_packages.ENVPOOL, "--backend envpool")


def describe_pool(spec: EnvSpec) -> tuple[Spaces, Description]:
    """Return the spaces, and the description for checkpoints.

    Raises if Gymnasium's environment of this id, used for evaluation, has different spaces.
    """
    envs = EnvPoolBatch(spec, 1, [0])
    description = envs.describe()
    envs.close()
    pooled, scored_in = envs.spaces, spec_for_evaluation(spec)
    if scored_in.backend == "envpool":
        return pooled, description
    env = make_env(scored_in)
    scored = spaces_of(env, spec.name)
    env.close()
    if _sizes_and_bounds(pooled) != _sizes_and_bounds(scored):
        raise EnvironmentSetupError(
            f"EnvPool's {spec.name} is not Gymnasium's, in which it would be evaluated: "
            f"{_sizes_and_bounds(pooled)} and {_sizes_and_bounds(scored)}; leave --backend envpool out"
        )
    return scored, description


def _sizes_and_bounds(spaces: Spaces) -> str:
    action = spaces.action
    if isinstance(action, DiscreteActions):
        return f"{spaces.observation_size} observations, actions of {action.choices} values from {action.start} on"
    low, high = (bound.astype(np.float32).tolist() for bound in (action.low, action.high))
    return f"{spaces.observation_size} observations, actions from {low} to {high}"


class EnvPoolBatch(Stepped):
    """Environments of one EnvPool, stepped together; each starts a new episode when one ends."""

    def __init__(self, spec: EnvSpec, count: int, seeds: Sequence[int]) -> None:
        self._spec, self._count = spec, count
        self._limit = _step_limit(spec)
        self._pool = self._make(seeds)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the precision of its bounds
            super().__init__(spaces_of(self._pool, spec.name), count)
        self._is_box = self.spaces.observation["kind"] == "box"
        self._begin(np.arange(count))

    def step(self, actions: NDArray[Any]) -> list[tuple[int, float, int]]:
        """Take one step in each environment; returns (environment, return, length) of each episode that ended."""
        observations, rewards, terminated, truncated, _ = self._pool.step(self._range.to_env(actions))
        self.next_observations[:] = self._flatten(observations)
        self.rewards[:] = rewards
        self.terminated[:] = terminated
        self._returns += rewards
        self._lengths += 1
        np.copyto(self.observations, self.next_observations)
        self.ended[:] = terminated | truncated | (self._lengths >= self._limit)
        ended = self.ended.nonzero()[0]
        if not ended.size:
            return []
        finished = [(int(i), float(self._returns[i]), int(self._lengths[i])) for i in ended]
        # EnvPool would otherwise reset them in the next step, which ignores its action and is no transition.
        self._begin(ended)
        return finished

    def stagger(self) -> None:
        """Do nothing: EnvPool's resets are as fast as its steps."""

    def rest(self, i: int) -> None:
        """Do nothing: EnvPool always steps its whole batch."""

    def reset(self, seeds: Sequence[int]) -> None:
        """Start a new episode in every environment; the pool is made again, the only way to set its seeds."""
        self._pool = self._make(seeds)
        self._begin(np.arange(self._count))

    def close(self) -> None:
        """End EnvPool's threads."""
        self._pool.close()

    def describe(self) -> Description:
        """Describe the environment for checkpoints."""
        return describe_environment(self._pool, self._spec)

    def _make(self, seeds: Sequence[int]) -> Any:
        return _call_envpool(
            "make_gymnasium",
            self._spec,
            num_envs=self._count,
            num_threads=THREADS,
            env_seed=[seed & SEED_MASK for seed in seeds],
            # Never reached: at its own limit, EnvPool reports an episode as truncated even if it terminated.
            max_episode_steps=self._limit + 1,
        )

    def _begin(self, which: NDArray[np.intp]) -> None:
        observations, _ = self._pool.reset(which.astype(np.int32))
        self.observations[which] = self._flatten(observations)
        self._returns[which] = 0.0
        self._lengths[which] = 0

    def _flatten(self, observations: Any) -> Vectors:
        return observations if self._is_box else flatten(self.spaces.observation, observations)


def _step_limit(spec: EnvSpec) -> int:
    if spec.max_episode_steps is not None:
        return spec.max_episode_steps
    return int(_call_envpool("make_spec", spec).config.max_episode_steps)


def _call_envpool(maker: str, spec: EnvSpec, **settings: Any) -> Any:
    """Call one of EnvPool's constructors; raise an error that says what is wrong and how to fix it."""
    envpool: Any = optional_packages.require(optional_packages.ENVPOOL, "--backend envpool")
    known = envpool.list_all_envs()
    if spec.name not in known:
        near = difflib.get_close_matches(spec.name, known, n=3, cutoff=0.5)
        hint = f"near names: {', '.join(near)}; " if near else ""
        raise EnvironmentSetupError(f"EnvPool has no environment '{spec.name}'; {hint}or leave --backend envpool out")
    kwargs = dict(spec.kwargs or {})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return getattr(envpool, maker)(spec.name, **{**kwargs, **settings})
    except SpreezeError:
        raise
    except Exception as error:
        detail = f"{type(error).__name__}: {one_line(error)}"
        raise EnvironmentSetupError(
            f"EnvPool's {spec.name} could not be made: {detail} (arguments: {json_text(kwargs, default=str)})"
        ) from error
