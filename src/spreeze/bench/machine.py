"""When, where and with which versions something was measured: what a reader needs beside the figures.

Out: a description for the JSON of a benchmark, without importing what it describes.
"""

from __future__ import annotations

import importlib.metadata
import platform
import time
from typing import Any

import psutil

from spreeze import __version__
from spreeze.adapt.hardware import cpu_name, this_machine

PACKAGES = ("torch", "gymnasium", "mujoco", "numpy")


def describe_machine() -> dict[str, Any]:
    """Return date, machine and versions."""
    machine = this_machine()
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {
            "cores": machine.cores,
            "cpu_model": cpu_name(),
            "memory_bytes": int(psutil.virtual_memory().total),
            "gpus": [gpu.name for gpu in machine.gpus],
        },
        "versions": {"python": platform.python_version(), "spreeze": __version__, **_versions()},
    }


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found
