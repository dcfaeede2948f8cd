"""Describes when, on which machine and with which versions a benchmark was measured.

Out: a description for the JSON of a benchmark. The packages are not imported.
"""

from __future__ import annotations

import importlib.metadata
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from spreeze.host.hardware import cpu_name, this_machine
from spreeze.host.json_text import json_file
from spreeze.host.version import VERSION

PACKAGES = ("torch", "gymnasium", "mujoco", "numpy")


def describe_benchmark(benchmark: str) -> dict[str, Any]:
    """Return the head of a benchmark's JSON: its name, the command, date, machine, versions and commit."""
    return {"benchmark": benchmark, "command": shlex.join(["spreeze", *sys.argv[1:]]), **describe_machine()}


def write_benchmark(path: Path | None, benchmark: str, figures: Mapping[str, Any]) -> None:
    """Write a benchmark's JSON, where one is wanted."""
    if path is not None:
        path.write_bytes(json_file({**describe_benchmark(benchmark), **figures}))


def describe_machine() -> dict[str, Any]:
    """Return date, machine, versions and, in a checkout, the commit."""
    machine = this_machine()
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {
            "cores": machine.cores,
            "cpu_model": cpu_name(),
            "memory_bytes": int(psutil.virtual_memory().total),
            "gpus": [gpu.name for gpu in machine.gpus],
        },
        "versions": {"python": platform.python_version(), "spreeze": VERSION, **_versions()},
        "git_commit": _git("rev-parse", "HEAD"),
        # Results that are written do not change what is measured.
        "git_dirty": bool(
            _git("status", "--porcelain", "--", ":/", ":(top,exclude)benchmarks/results", ":(top,exclude)docs/images")
        ),
    }


def _git(*words: str) -> str | None:
    """Return the output of git in the checkout that this file is in; None if it is installed from a package."""
    source = Path(__file__).resolve().parents[3]
    if source.name != "src":
        return None
    try:
        done = subprocess.run(  # noqa: S603 (the words are ours)
            ["git", *words],  # noqa: S607 (wherever the user has it)
            cwd=source,
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found
