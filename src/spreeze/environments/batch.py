"""Steps several Gymnasium environments together, one by one or with the batched steps of `mujoco.py`.

In: an `EnvSpec` and their number. Out: `Environments`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from spreeze.channels.spaces import Encoding
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.findings import Unusable
from spreeze.environments.make import make_env
from spreeze.environments.mujoco import MujocoSteps, stop_mujoco_timers
from spreeze.environments.observations import Vectors, flatten
from spreeze.environments.returned_values import require_rewards, split_reset, split_step
from spreeze.environments.spaces import spaces_of
from spreeze.environments.stepped import NO_LIMIT, Stepped, Watcher


class EnvBatch(Stepped):
    """Several environments of one process, stepped together; each starts a new episode when one ends."""

    def __init__(
        self,
        spec: EnvSpec,
        count: int,
        seeds: Sequence[int],
        beat: Callable[[], None] = lambda: None,
        watcher: Watcher | None = None,
    ) -> None:
        """Make the environments; `beat` is called after each, since some take seconds."""
        self._envs: list[gymnasium.Env[Any, Any]] = []
        self._name, self._watcher = spec.name, watcher
        for _ in range(count):
            self._envs.append(make_env(spec))
            if watcher is not None:
                watcher.made(self._envs[-1])
            beat()
        stop_mujoco_timers()
        super().__init__(spaces_of(self._envs[0], spec.name), count)
        # Time limits are checked here for all environments at once, instead of by a wrapper around each step.
        inner = [without_time_limit(env) for env in self._envs]
        self._limits = np.array([limit for _, limit in inner], np.int64)
        self._steps = [(i, env.step) for i, (env, _) in enumerate(inner)]
        # The order alternates: environments stepped last come first the next time, while their data is in the cache.
        self._order, self._next_order = self._steps, self._steps[::-1]
        # The shape of an observation that is a vector already; no array has -1 elements.
        is_box = self.spaces.observation["kind"] == "box"
        self._vector_shape = (self.spaces.observation_size if is_box else -1,)
        self._together: MujocoSteps | None = None
        if spec.backend == "mujoco":
            self._together = MujocoSteps(spec.name, [env for env, _ in inner], self.next_observations)
        for i in range(count):
            self._reset(i, seeds[i])
            beat()

    def step(self, actions: NDArray[Any]) -> list[tuple[int, float, int]]:
        """Take one step in each environment; actions as policies give them, (envs, action_size).

        Returns (environment, return, length) of each episode that ended.
        """
        env_actions = self._range.to_env(actions)
        if self._together is None:
            stepped, ended = self._step_one_by_one(env_actions)
        else:
            stepped, fell = self._together.step(env_actions)
            ended = dict.fromkeys(fell.nonzero()[0].tolist(), True)
        self.rewards[:] = stepped
        self._returns += stepped
        self._lengths += 1
        out_of_time = self._lengths >= self._limits
        if out_of_time.any():
            for i in out_of_time.nonzero()[0].tolist():
                ended.setdefault(i, False)
        self.terminated[:] = False
        self.ended[:] = False
        np.copyto(self.observations, self.next_observations)
        finished: list[tuple[int, float, int]] = []
        for i, terminated in sorted(ended.items()):
            self.terminated[i] = terminated
            self.ended[i] = True
            finished += self._end_episode(i)
            self._reset(i, None)
        return finished

    def _step_one_by_one(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], dict[int, bool]]:
        """Return the rewards, and for each episode that ended whether it was terminated."""
        next_observations, vector_shape = self.next_observations, self._vector_shape
        rewards = [0.0] * len(self._envs)
        ended: dict[int, bool] = {}
        # This loop is most of a sampler's time outside the environments: what can be done for all is done elsewhere.
        self._order, self._next_order = self._next_order, self._order
        for i, step in self._order:
            returned = step(actions[i])
            try:
                observation, reward, terminated, truncated, _ = returned
            except (TypeError, ValueError):
                raise self._in_words(split_step, returned) from None
            # NumPy would broadcast a vector of another shape, and parse strings: flattening raises instead.
            fits = type(observation) is np.ndarray and observation.shape == vector_shape
            is_plain = fits and observation.dtype.kind == "f"
            next_observations[i] = observation if is_plain else self._flatten(observation)
            rewards[i] = reward  # type: ignore[call-overload]
            if terminated or truncated:
                ended[i] = terminated
        try:
            return np.fromiter(rewards, np.float64, len(rewards)), ended
        except (TypeError, ValueError):
            raise self._in_words(require_rewards, rewards) from None

    def rest(self, i: int) -> None:
        """Leave an environment out of steps until the next `reset`."""
        if self._together is not None:
            self._together.rest(i)
        self._order = [(env, step) for env, step in self._order if env != i]
        self._next_order = self._order[::-1]

    def reset(self, seeds: Sequence[int]) -> None:
        """Start a new episode in every environment."""
        self._order, self._next_order = self._steps, self._steps[::-1]
        if self._together is not None:
            self._together.wake_all()
        for i, seed in enumerate(seeds):
            self._reset(i, seed)

    def close(self) -> None:
        """Close all environments, and the processes or threads they may have started."""
        for env in self._envs:
            with contextlib.suppress(Exception):  # an error while closing has no consequence
                env.close()

    def _reset(self, i: int, seed: int | None) -> None:
        if self._watcher is not None:
            self._watcher.before_reset(self._envs[i])
        returned = self._envs[i].reset(seed=seed)
        try:
            observation, _ = returned
        except (TypeError, ValueError):
            space = self._envs[i].observation_space
            raise self._in_words(lambda value: split_reset(value, space), returned) from None
        self.observations[i] = self._flatten(observation)
        self._returns[i] = 0.0
        self._lengths[i] = 0
        if self._together is not None:
            self._together.begin(i)

    def _in_words(self, check: Callable[[Any], object], value: Any) -> ValueError:
        """Return the error about a value that could not be used; check: raises `Unusable` for it."""
        try:
            check(value)
        except Unusable as unusable:
            return ValueError(f"{self._name}: {unusable.finding.problem}; {unusable.finding.fix}")
        return ValueError(f"{self._name} returned {value!r:.100}, which cannot be used")

    def _flatten(self, observation: Any) -> Vectors:
        return flatten_checked(self._name, self.spaces.observation, observation)


def flatten_checked(name: str, encoding: Encoding, observation: Any) -> Vectors:
    """Return one observation of an environment as a vector; raise if it is none of its space."""
    try:
        vector = flatten(encoding, observation)
        if vector.ndim != 1:
            raise ValueError(f"observation has {vector.ndim} axes after flattening: its space says otherwise")
    except ValueError as error:
        raise ValueError(f"{name} returned what its observation space does not allow: {error}") from None
    return vector


def without_time_limit(env: gymnasium.Env[Any, Any]) -> tuple[gymnasium.Env[Any, Any], int]:
    """Return the environment without the wrappers of `gymnasium.make`, and its limit of steps per episode.

    Each wrapper costs up to a microsecond per step, and `EnvBatch` calls reset and step in the right order itself.
    Wrappers inside one that is not Gymnasium's own stay: their order may matter.
    """
    limit = NO_LIMIT
    while type(env) in (gymnasium.wrappers.TimeLimit, gymnasium.wrappers.OrderEnforcing):
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            limit = min(limit, env._max_episode_steps)
        assert isinstance(env, gymnasium.Wrapper)
        env = env.env
    return env, limit
