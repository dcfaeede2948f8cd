"""Environments of packages that are optional extras of Spreeze, recognised by their ids.

In: an id. Out: the id in Gymnasium's registry, or an error with the command that installs the package.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from types import ModuleType

import gymnasium

from spreeze.errors import EnvironmentSetupError, one_line


@dataclass(frozen=True)
class Extra:
    """An optional package, and how to install it."""

    title: str
    module: str
    extra: str
    newest_python: tuple[int, int] | None = None
    """The newest Python that it has wheels for, as in pyproject.toml; None: any."""


BULLET = Extra("PyBullet", "pybullet", "bullet", newest_python=(3, 11))
# Its dependency labmaze has no newer wheels.
DM_CONTROL = Extra("dm_control", "dm_control", "dmc", newest_python=(3, 12))
SHIMMY = Extra("dm_control", "shimmy", "dmc", newest_python=(3, 12))
ENVPOOL = Extra("EnvPool", "envpool", "envpool")


def is_bullet(env_id: str) -> bool:
    """Return whether an id is one of PyBullet's."""
    return "Bullet" in env_id


def register_id(env_id: str) -> None:
    """Import the optional package that an id belongs to, unless Gymnasium knows the id already."""
    if env_id in gymnasium.registry:
        return
    if is_bullet(env_id):
        register_bullet(env_id)
    elif env_id.startswith("dm_control/"):
        require(DM_CONTROL, env_id)
        require(SHIMMY, env_id)  # its import registers all of them


def register_bullet(wanted_by: str) -> None:
    """Register PyBullet's environments."""
    require(BULLET, wanted_by)
    from spreeze.environments.pybullet import register_all

    register_all()


def require(extra: Extra, wanted_by: str) -> ModuleType:
    """Import a package; raise an error that says how to install it."""
    try:
        return importlib.import_module(extra.module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == extra.module.partition(".")[0]:
            raise missing(extra, wanted_by) from None
        raise EnvironmentSetupError(
            f"{wanted_by}: importing '{extra.module}' raised {type(error).__name__}: {one_line(error)}"
        ) from error


def missing(extra: Extra, wanted_by: str) -> EnvironmentSetupError:
    """Return the error that says how to install a package."""
    install = f'pip install "spreeze[{extra.extra}]"'
    if extra.newest_python is not None and sys.version_info[:2] > extra.newest_python:
        here, newest = (".".join(map(str, version)) for version in (sys.version_info[:2], extra.newest_python))
        install = f"it has no wheels for Python {here}; with Python {newest}, {install}"
    return EnvironmentSetupError(f"{wanted_by} needs {extra.title}, which is not installed: {install}")
