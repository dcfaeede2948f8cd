"""Compares what is installed on a machine with what the head has: rows of other versions would not be the same.

Pure functions. In: what `AgentShell.hello` has answered. Out: one line that says what to install, or nothing.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata
from typing import Any

PACKAGES = ("spreeze", "gymnasium", "mujoco", "numpy", "cloudpickle")
"""What has to be there, in the same version: code and rows of samplers depend on it."""
ONLY_MAJOR = ("numpy", "cloudpickle")
"""What is compatible within a major version."""


def own_versions() -> dict[str, Any]:
    """Return what this machine has, as `hello` answers it."""
    return {"python": platform.python_version(), "packages": {package: _version(package) for package in PACKAGES}}


def why_unfit(machine: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str | None:
    """Return what is different on a machine, in one line; None if nothing is."""
    ours_python, their_python = (_minor(each["python"]) for each in (ours, theirs))
    if ours_python != their_python:
        return f"{machine} has Python {their_python}, this machine {ours_python}: use the same minor version on both"
    for package, version in ours["packages"].items():
        found = theirs["packages"].get(package, "")
        if not version or _compared(package, found) == _compared(package, version):
            continue
        has = f"has {package} {found}" if found else f"has no {package}"
        return f"{machine} {has}, this machine {version}: run `pip install {package}=={version}` there"
    return None


def _compared(package: str, version: str) -> str:
    return version.partition(".")[0] if package in ONLY_MAJOR else version


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
