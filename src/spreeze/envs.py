"""Makes environments, checks their spaces, and steps several at once.

In: an `EnvSpec`. Out: `Spaces` for whoever sizes memory and networks, and `Environments` for whoever plays.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from spreeze import extras
from spreeze.actions import ActionRange
from spreeze.config import Backend, Config
from spreeze.errors import EnvironmentSetupError, one_line
from spreeze.observations import Encoding, Vectors, flatten, vector_size
from spreeze.output import output_to

SUPPORTED = (
    "Spreeze trains continuous control: Box actions with finite bounds; "
    "Box, Dict and Tuple observations that are not images"
)
IMAGE_AXES = 3
NO_LIMIT = np.iinfo(np.int64).max
# Ends the recorded name of an environment that a callable made: it cannot be made again from its name.
CALLABLE_MARK = "()"


@dataclass(frozen=True)
class EnvSpec:
    """What to make: an id that Gymnasium or EnvPool knows, or a callable that returns an environment."""

    name: str
    modules: tuple[str, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    max_episode_steps: int | None = None
    factory: Callable[..., gymnasium.Env[Any, Any]] | None = None
    backend: Backend = "gymnasium"

    @classmethod
    def of(cls, config: Config, factory: Callable[..., gymnasium.Env[Any, Any]] | None = None) -> EnvSpec:
        """Return what a config says about its environment."""
        environment = config.environment
        kwargs = json.loads(environment.env_kwargs)
        return cls(
            config.env, environment.env_module, kwargs, environment.max_episode_steps, factory, environment.backend
        )

    def for_evaluation(self) -> EnvSpec:
        """Return where policies are scored: in Gymnasium's own environment, where it has one of this id."""
        return replace(self, backend="gymnasium") if self.name in gymnasium.registry else self


@dataclass(frozen=True)
class Spaces:
    """What the rest of Spreeze has to know of an environment."""

    observation: Encoding
    action_low: NDArray[Any]
    """Flat, in the environment's own type."""
    action_high: NDArray[Any]
    action_shape: tuple[int, ...]

    @property
    def observation_size(self) -> int:
        """Length of the flattened observation."""
        return vector_size(self.observation)

    @property
    def action_size(self) -> int:
        """Length of the flattened action."""
        return self.action_low.size

    def require_same(self, made: Spaces) -> None:
        """Raise, with both sizes named, if an environment is not the one that memory was sized for."""
        if (made.observation_size, made.action_size) != (self.observation_size, self.action_size):
            raise ValueError(
                f"the environment was made with {made.observation_size} observations and {made.action_size} "
                f"actions, but with {self.observation_size} and {self.action_size} when the run was planned"
            )


class Environments(Protocol):
    """Several environments of one process, stepped together; each starts a new episode when one ends."""

    spaces: Spaces
    observations: NDArray[np.float32]
    """What to act on next."""
    next_observations: NDArray[np.float32]
    """What the last step led to: of an episode that ended, its true last observation."""
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]

    def __len__(self) -> int: ...

    def step(self, actions: NDArray[np.float32]) -> list[tuple[int, float, int]]:
        """Take one step in each environment; actions are in [-1, 1], (envs, action_size).

        Returns (environment, return, length) of each episode that ended.
        """
        ...

    def so_far(self, i: int) -> tuple[float, int]:
        """Return the return and the length of an episode that has not ended."""
        ...

    def reset(self, seeds: Sequence[int]) -> None:
        """Start a new episode in every environment."""
        ...

    def close(self) -> None:
        """Close all environments, with what they may have started."""
        ...


def make_envs(
    spec: EnvSpec, count: int, seeds: Sequence[int], beat: Callable[[], None] = lambda: None
) -> Environments:
    """Make environments to play in; `beat` is called now and then, since some take seconds."""
    if spec.backend == "envpool":
        from spreeze.envpool_batch import EnvPoolBatch  # only here: it needs EnvPool

        beat()
        return EnvPoolBatch(spec, count, seeds)
    return EnvBatch(spec, count, seeds, beat)


def check_exists(spec: EnvSpec) -> None:
    """Raise unless Gymnasium knows the id, or EnvPool is there to be asked for it. Makes no environment."""
    for module in spec.modules:
        _import(module, "--env-module")
    if spec.backend == "envpool":
        from spreeze.envpool_batch import check_installed

        check_installed(spec)
        return
    if spec.factory is not None:
        return
    if spec.name.endswith(CALLABLE_MARK):
        raise EnvironmentSetupError(
            f"{spec.name} was made by a callable in Python and cannot be made from its name: "
            "use spreeze.train or spreeze.load_policy there"
        )
    module, _, env_id = spec.name.rpartition(":")
    if module:
        _import(module, "ENV")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "v4 is out of date": the user asked for it
        extras.register_id(env_id)
        try:
            gymnasium.spec(env_id)
        except gymnasium.error.Error:
            raise EnvironmentSetupError(_unknown_id(env_id)) from None


def make_env(spec: EnvSpec) -> gymnasium.Env[Any, Any]:
    """Make one environment; raise an error that says how to fix what stood in the way."""
    check_exists(spec)
    kwargs = dict(spec.kwargs or {})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if spec.factory is not None:
                env = spec.factory(**kwargs)
                if spec.max_episode_steps is not None:
                    env = gymnasium.wrappers.TimeLimit(env, spec.max_episode_steps)
            else:
                # The passive checker costs microseconds at every step; the spaces are checked here instead.
                env = gymnasium.make(
                    spec.name, max_episode_steps=spec.max_episode_steps, disable_env_checker=True, **kwargs
                )
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise EnvironmentSetupError(f"{spec.name} needs a package that is missing: {one_line(error)}") from error
    except (Exception, SystemExit) as error:
        detail = f"{type(error).__name__}: {one_line(error)}"
        raise EnvironmentSetupError(
            f"{spec.name} could not be made: {detail} (arguments: {json.dumps(kwargs, default=str)})"
        ) from error
    if not all(isinstance(getattr(env, f"{kind}_space", None), spaces.Space) for kind in ("action", "observation")):
        raise EnvironmentSetupError(
            f"{spec.name} gave a {type(env).__name__}, not a Gymnasium environment: "
            "it needs action_space, observation_space, reset and step"
        )
    return env


def spaces_of(env: gymnasium.Env[Any, Any], name: str) -> Spaces:
    """Check that the environment's spaces are supported, and describe them."""
    action = env.action_space
    if not isinstance(action, spaces.Box):
        raise EnvironmentSetupError(f"{name} has {type(action).__name__} actions. {SUPPORTED}.")
    if not np.issubdtype(action.dtype, np.floating):
        raise EnvironmentSetupError(f"{name} has Box actions of type {action.dtype}, not float. {SUPPORTED}.")
    if not (np.isfinite(action.low).all() and np.isfinite(action.high).all()):
        raise EnvironmentSetupError(
            f"{name} has unbounded actions: wrap it in gymnasium.wrappers.RescaleAction or ClipAction "
            f"to give them bounds. {SUPPORTED}."
        )
    encoding = _encode(env.observation_space, name)
    if vector_size(encoding) == 0 or action.low.size == 0:
        raise EnvironmentSetupError(f"{name} has an empty observation or action space. {SUPPORTED}.")
    return Spaces(
        encoding,
        action.low.ravel(),
        action.high.ravel(),
        tuple(int(axis) for axis in action.shape),
    )


def look_at(spec: EnvSpec, log_path: Path) -> Spaces:
    """Make one environment to see its spaces, and close it. What it prints goes to the log."""
    with output_to(log_path):
        if spec.backend == "envpool":
            from spreeze.envpool_batch import look_at_pool

            return look_at_pool(spec)
        env = make_env(spec)
        try:
            return spaces_of(env, spec.name)
        finally:
            with contextlib.suppress(Exception):  # a close that fails must not hide what the spaces said
                env.close()


class Stepped:
    """What a step of several environments leaves, and how far their episodes are: the arrays of an `Environments`."""

    def __init__(self, spaces: Spaces, count: int) -> None:
        self.spaces = spaces
        self.observations = np.zeros((count, spaces.observation_size), np.float32)
        self.next_observations = np.zeros((count, spaces.observation_size), np.float32)
        self.rewards = np.zeros(count, np.float32)
        self.terminated = np.zeros(count, np.bool_)
        self._range = ActionRange(spaces.action_low, spaces.action_high, spaces.action_shape)
        self._returns = np.zeros(count)
        self._lengths = np.zeros(count, np.int64)

    def __len__(self) -> int:
        return len(self.rewards)

    def so_far(self, i: int) -> tuple[float, int]:
        """Return the return and the length of an episode that has not ended."""
        return float(self._returns[i]), int(self._lengths[i])


class EnvBatch(Stepped):
    """Several environments of one process, stepped together; each starts a new episode when one ends."""

    def __init__(
        self, spec: EnvSpec, count: int, seeds: Sequence[int], beat: Callable[[], None] = lambda: None
    ) -> None:
        """Make the environments; `beat` is called after each, since some take seconds."""
        self._envs: list[gymnasium.Env[Any, Any]] = []
        self._name = spec.name
        for _ in range(count):
            self._envs.append(make_env(spec))
            beat()
        super().__init__(spaces_of(self._envs[0], spec.name), count)
        # Limits of length are kept here, for all at once, and not by a wrapper around each step.
        inner = [_without_time_limit(env) for env in self._envs]
        self._limits = np.array([limit for _, limit in inner], np.int64)
        # Stepped to and fro: those stepped last come first the next time, while their data is still in the cache.
        self._there = [(i, env.step) for i, (env, _) in enumerate(inner)]
        self._back = self._there[::-1]
        # What an observation looks like that is a vector already; nothing has -1 elements.
        is_box = self.spaces.observation["kind"] == "box"
        self._vector_shape = (self.spaces.observation_size if is_box else -1,)
        for i in range(count):
            self._reset(i, seeds[i])
            beat()

    def step(self, actions: NDArray[np.float32]) -> list[tuple[int, float, int]]:
        """Take one step in each environment; actions are in [-1, 1], (envs, action_size).

        Returns (environment, return, length) of each episode that ended.
        """
        env_actions = self._range.from_unit(actions)
        next_observations, vector_shape = self.next_observations, self._vector_shape
        rewards = [0.0] * len(self._envs)
        ended: dict[int, bool] = {}
        # The loop is what a sampler's time goes to beside the environment: nothing in it that can be done for all.
        self._there, self._back = self._back, self._there
        for i, step in self._there:
            observation, reward, terminated, truncated, _ = step(env_actions[i])
            # A vector of another shape must not be stretched over the row, nor texts read: flattening them raises.
            fits = type(observation) is np.ndarray and observation.shape == vector_shape
            is_plain = fits and observation.dtype.kind == "f"
            next_observations[i] = observation if is_plain else self._flatten(observation)
            rewards[i] = reward  # type: ignore[call-overload]
            if terminated or truncated:
                ended[i] = terminated
        stepped = np.fromiter(rewards, np.float64, len(rewards))
        self.rewards[:] = stepped
        self._returns += stepped
        self._lengths += 1
        out_of_time = self._lengths >= self._limits
        if out_of_time.any():
            for i in out_of_time.nonzero()[0].tolist():
                ended.setdefault(i, False)
        self.terminated[:] = False
        np.copyto(self.observations, next_observations)
        finished = []
        for i, terminated in sorted(ended.items()):
            self.terminated[i] = terminated
            finished.append((i, float(self._returns[i]), int(self._lengths[i])))
            self._reset(i, None)
        return finished

    def reset(self, seeds: Sequence[int]) -> None:
        """Start a new episode in every environment."""
        for i, seed in enumerate(seeds):
            self._reset(i, seed)

    def close(self) -> None:
        """Close all environments, with what they may have started."""
        for env in self._envs:
            with contextlib.suppress(Exception):  # nothing can be done about it at the end
                env.close()

    def _reset(self, i: int, seed: int | None) -> None:
        observation, _ = self._envs[i].reset(seed=seed)
        self.observations[i] = self._flatten(observation)
        self._returns[i] = 0.0
        self._lengths[i] = 0

    def _flatten(self, observation: Any) -> Vectors:
        try:
            vector = flatten(self.spaces.observation, observation)
            if vector.ndim != 1:
                raise ValueError(f"observation has {vector.ndim} axes after flattening: its space says otherwise")
        except ValueError as error:
            raise ValueError(f"{self._name} gave what its observation space does not allow: {error}") from None
        return vector


def _without_time_limit(env: gymnasium.Env[Any, Any]) -> tuple[gymnasium.Env[Any, Any], int]:
    """Return what `gymnasium.make` has wrapped, and after how many steps it would end an episode.

    Each wrapper costs up to a microsecond at every step, and an `EnvBatch` keeps the order of reset and step itself.
    Wrappers below one that is not Gymnasium's own stay: their order may matter.
    """
    limit = NO_LIMIT
    while type(env) in (gymnasium.wrappers.TimeLimit, gymnasium.wrappers.OrderEnforcing):
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            limit = min(limit, env._max_episode_steps)
        assert isinstance(env, gymnasium.Wrapper)
        env = env.env
    return env, limit


def _encode(space: spaces.Space[Any], name: str) -> Encoding:
    match space:
        case spaces.Box():
            if len(space.shape) >= IMAGE_AXES or (len(space.shape) > 1 and space.dtype == np.uint8):
                raise EnvironmentSetupError(f"{name} observes images of shape {space.shape}. {SUPPORTED}.")
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


def _import(module: str, origin: str) -> None:
    if module == "pybullet_envs":  # by habit: it needs more than an import
        return extras.register_bullet(origin)
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise EnvironmentSetupError(
            f"{origin}: there is no module '{error.name}': install the package, or run where it can be imported"
        ) from None
    except Exception as error:
        raise EnvironmentSetupError(
            f"{origin}: importing '{module}' raised {type(error).__name__}: {one_line(error)}"
        ) from error


def _unknown_id(env_id: str) -> str:
    # Compared without case: HalfCheetah is as often typed halfcheetah.
    known = {name.lower(): name for name in gymnasium.registry}
    near = difflib.get_close_matches(env_id.lower(), known, n=3, cutoff=0.3)
    hint = f"near names: {', '.join(known[name] for name in near)}; " if near else ""
    return f"there is no environment '{env_id}'; {hint}--env-module imports a package that registers its own"
