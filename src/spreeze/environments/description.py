"""Describes an environment as a checkpoint records it, so that a run is resumed with the one it was trained on.

In: an environment that was made of an `EnvSpec`. Out: a JSON object: its id and arguments, the versions of the
packages that it comes from, and its spaces with kinds, shapes, types, keys and bounds. It stays small: of long arrays
it has digests.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import math
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from spreeze.config.env_spec import EnvSpec
from spreeze.environments.optional_packages import BULLET, DM_CONTROL, is_bullet
from spreeze.host.json_text import json_text

Description = dict[str, Any]

MAX_LISTED = 64  # numbers of an array that is not uniform: the bounds of a large robot's action take about 500 bytes
MAX_ARGUMENT = 2000  # characters
OWN = __name__.partition(".")[0]  # this package: what it registers belongs to another one


def describe_environment(env: Any, spec: EnvSpec) -> Description:
    """Describe an environment, or a batch of them that has spaces as a single one does."""
    return {
        "id": spec.name if spec.factory is None else getattr(_own_spec(env), "id", None),
        "kwargs": _arguments(env, spec),
        "packages": _versions(_packages_of(env, spec)),
        "observation": describe_space(env.observation_space),
        "action": describe_space(env.action_space),
    }


def describe_space(space: spaces.Space[Any]) -> Description:
    """Describe a space with everything that makes two of them differ."""
    match space:
        case spaces.Dict():
            return {"kind": "Dict", "parts": {str(key): describe_space(part) for key, part in space.items()}}
        case spaces.Tuple():
            return {"kind": "Tuple", "parts": [describe_space(part) for part in space]}
        case spaces.Box():
            own: Description = {"low": describe_array(space.low), "high": describe_array(space.high)}
        case spaces.Discrete():
            own = {"n": int(space.n), "start": int(space.start)}
        case spaces.MultiDiscrete():
            own = {"nvec": describe_array(space.nvec), "start": describe_array(space.start)}
        case _:
            own = {}
    shape = [int(axis) for axis in space.shape or ()]
    return {"kind": type(space).__name__, "shape": shape, "dtype": str(space.dtype), **own}


def describe_array(array: NDArray[Any]) -> Any:
    """Describe an array exactly: as one number where all are the same, as a list, or as a digest of a long one."""
    flat = np.ravel(array)
    if flat.dtype.kind == "f":
        flat = flat.astype(np.float64) + 0.0  # there is no difference between 0 and -0
        flat[np.isnan(flat)] = np.nan  # nor between one NaN and another
    if flat.size and np.array_equal(flat, np.full_like(flat, flat[0]), equal_nan=flat.dtype.kind == "f"):
        return _number(flat[0])
    if flat.size <= MAX_LISTED:
        return [_number(number) for number in flat]
    little = flat.astype(flat.dtype.newbyteorder("<"))
    return {
        "numbers": flat.size,
        "lowest": _number(np.fmin.reduce(flat)),
        "highest": _number(np.fmax.reduce(flat)),
        "sha256": hashlib.sha256(little.tobytes()).hexdigest(),
    }


def _number(value: Any) -> int | float | str:
    """Return a number as JSON has it; a NaN or an infinity as a word, because JSON has neither."""
    plain = value.item()
    return str(plain) if isinstance(plain, float) and not math.isfinite(plain) else plain


# --- arguments ---------------------------------------------------------------------------------------------------


def _own_spec(env: Any) -> Any:
    """Return Gymnasium's own description of an environment that it has made, or None."""
    with contextlib.suppress(Exception):  # a property of somebody else's class
        return env.unwrapped.spec
    return None


def _arguments(env: Any, spec: EnvSpec) -> Description:
    given: dict[str, Any] = dict(spec.kwargs or {})
    own = _own_spec(env) if spec.factory is not None else None
    if isinstance(own, gymnasium.envs.registration.EnvSpec):
        # What a callable has passed to gymnasium.make: the registered ones belong to the package's version.
        registered = gymnasium.registry[own.id].kwargs if own.id in gymnasium.registry else {}
        passed = {name: _plain(value) for name, value in own.kwargs.items() if name != "render_mode"}
        usual = {name: _plain(value) for name, value in registered.items()}
        given = {name: value for name, value in passed.items() if name not in usual or usual[name] != value} | given
    return {str(name): _plain(value) for name, value in given.items()}


def _plain(value: Any) -> Any:
    """Return an argument as JSON has it: of what JSON has no form for, the type, since a repr may hold an address."""
    try:
        text = json_text(value, default=_type_name)
    except (TypeError, ValueError, RecursionError):
        return _type_name(value)
    if len(text) > MAX_ARGUMENT:
        return {"characters": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}
    return json.loads(text)


def _type_name(value: Any) -> str:
    return f"<{type(value).__module__}.{type(value).__qualname__}>"


# --- packages ----------------------------------------------------------------------------------------------------


def _packages_of(env: Any, spec: EnvSpec) -> set[str]:
    """Return the top-level modules that an environment and its physics come from."""
    with contextlib.suppress(Exception):  # a property of somebody else's class
        env = env.unwrapped
    modules = {cls.__module__ for cls in type(env).__mro__}
    entry_point = getattr(_own_spec(env), "entry_point", None)
    if isinstance(entry_point, str):
        modules.add(entry_point.partition(":")[0])
    tops = {module.partition(".")[0] for module in modules} | {"gymnasium"}
    if any(module.startswith("gymnasium.envs.mujoco") for module in modules):
        tops.add("mujoco")
    if spec.backend == "envpool":
        tops.add("envpool")
    if spec.factory is None and is_bullet(spec.name):
        tops.add(BULLET.module)
    if spec.factory is None and spec.name.startswith("dm_control/"):
        tops.add(DM_CONTROL.module)
    return tops - sys.stdlib_module_names - {OWN}


def _versions(modules: set[str]) -> Mapping[str, str]:
    """Return the version of each module's package; a module that belongs to none is left out."""
    found: dict[str, str] = {}
    for module in sorted(modules):
        for package in _candidates(module):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError, ValueError):
                found[package] = importlib.metadata.version(package)
                break
    return found


def _candidates(module: str) -> Iterator[str]:
    """Yield the names that the package of a module may have: mostly the module's own."""
    yield module
    file = getattr(sys.modules.get(module), "__file__", None)
    installed = {Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")}
    if file is None or not installed & set(Path(file).parents):
        return  # the user's own: to look through all packages for it takes 0.2 s
    yield from importlib.metadata.packages_distributions().get(module, ())
