"""Makes single Gymnasium environments.

In: an `EnvSpec`. Out: an environment, or an error that says what to install or correct.
"""

from __future__ import annotations

import difflib
import warnings
from typing import Any

import gymnasium
from gymnasium import spaces

from spreeze.config.env_spec import CALLABLE_MARK, EnvSpec
from spreeze.environments import optional_packages
from spreeze.errors import EnvironmentSetupError, one_line
from spreeze.host.json_text import json_text
from spreeze.host.named_modules import import_named


def spec_for_evaluation(spec: EnvSpec) -> EnvSpec:
    """Return the environment in which policies are scored: Gymnasium's own, if it has one of this id."""
    is_known = spec.backend != "envpool" or spec.name in gymnasium.registry
    return spec.with_backend("gymnasium") if is_known else spec


def spec_for_evaluator(spec: EnvSpec) -> EnvSpec:
    """Return the environment in which a training scores its policies: robots are stepped together if samplers do so.

    Their rows are Gymnasium's, which was checked before the run, and cost less CPU time.
    """
    return spec if spec.backend == "mujoco" else spec_for_evaluation(spec)


def import_modules(spec: EnvSpec) -> None:
    """Import the modules of --env-module, which register environments."""
    for module in spec.modules:
        _import(module, "--env-module")


def check_registered(spec: EnvSpec) -> None:
    """Raise unless Gymnasium knows the id. Makes no environment."""
    import_modules(spec)
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
        warnings.simplefilter("ignore")  # "v4 is out of date": the user has asked for it
        optional_packages.register_id(env_id)
        try:
            gymnasium.spec(env_id)
        except gymnasium.error.Error:
            raise EnvironmentSetupError(_unknown_id(env_id)) from None


def make_env(spec: EnvSpec) -> gymnasium.Env[Any, Any]:
    """Make one environment; raise an error that says what is wrong and how to fix it."""
    check_registered(spec)
    kwargs = dict(spec.kwargs or {})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if spec.factory is not None:
                env = spec.factory(**kwargs)
                if spec.max_episode_steps is not None:
                    env = gymnasium.wrappers.TimeLimit(env, spec.max_episode_steps)
            else:
                # The passive checker costs microseconds per step; `spaces_of` checks the spaces instead.
                env = gymnasium.make(
                    spec.name, max_episode_steps=spec.max_episode_steps, disable_env_checker=True, **kwargs
                )
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise EnvironmentSetupError(f"{spec.name} needs a package that is missing: {one_line(error)}") from error
    except (Exception, SystemExit) as error:
        detail = f"{type(error).__name__}: {one_line(error)}"
        raise EnvironmentSetupError(
            f"{spec.name} could not be made: {detail} (arguments: {json_text(kwargs, default=str)})"
        ) from error
    if not all(isinstance(getattr(env, f"{kind}_space", None), spaces.Space) for kind in ("action", "observation")):
        raise EnvironmentSetupError(
            f"{spec.name} gave a {type(env).__name__}, not a Gymnasium environment: "
            "it needs action_space, observation_space, reset and step"
        )
    return env


def _import(module: str, origin: str) -> None:
    if module == "pybullet_envs":  # users of gym imported it themselves; here that is not enough
        optional_packages.register_bullet(origin)
    else:
        import_named(module, origin, EnvironmentSetupError)


def _unknown_id(env_id: str) -> str:
    # Compared in lower case: HalfCheetah is often typed halfcheetah.
    known = {name.lower(): name for name in gymnasium.registry}
    near = difflib.get_close_matches(env_id.lower(), known, n=3, cutoff=0.3)
    hint = f"near names: {', '.join(known[name] for name in near)}; " if near else ""
    return f"there is no environment '{env_id}'; {hint}--env-module imports a package that registers its own"
