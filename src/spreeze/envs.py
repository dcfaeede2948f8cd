"""Makes environments and checks their spaces.

In: an `EnvSpec`. Out: environments, and `Spaces` for whoever sizes memory and networks.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from spreeze import extras
from spreeze.config import Backend, Config
from spreeze.errors import EnvironmentSetupError, one_line
from spreeze.observations import Encoding, vector_size
from spreeze.output import output_to

SUPPORTED = (
    "Spreeze trains continuous control: Box actions with finite bounds; "
    "Box, Dict and Tuple observations that are not images"
)
IMAGE_AXES = 3
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

    def with_backend(self, backend: Backend) -> EnvSpec:
        """Return the same, stepped by another."""
        return replace(self, backend=backend)

    def for_evaluation(self) -> EnvSpec:
        """Return where policies are scored: in Gymnasium's own environment, where it has one of this id."""
        is_known = self.backend != "envpool" or self.name in gymnasium.registry
        return self.with_backend("gymnasium") if is_known else self


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
