"""Finds out what a run has to know of its environment, once before it starts: makes it and describes it.

In: an `EnvSpec`. Out: `EnvironmentFacts`, or an error with the reason why it cannot be trained on.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium

from spreeze.channels.environment_facts import EnvironmentFacts
from spreeze.channels.spaces import Spaces
from spreeze.config.choice import Choice
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.backend import check_exists, choose_backend, choose_serial_backend
from spreeze.environments.description import describe_environment
from spreeze.environments.envpool import describe_pool
from spreeze.environments.make import make_env
from spreeze.environments.spaces import spaces_of
from spreeze.host.capture_output import capture_output

Env = gymnasium.Env[Any, Any]


def find_facts(spec: EnvSpec, is_serial: bool = False) -> EnvironmentFacts:
    """Make the environment, describe it and close it. is_serial: whether each is stepped by its own `step`."""
    with open_with_facts(spec, is_serial) as (facts, _):
        return facts


@contextlib.contextmanager
def open_with_facts(spec: EnvSpec, is_serial: bool = False) -> Iterator[tuple[EnvironmentFacts, Env | None]]:
    """Describe an environment as `find_facts` does, and keep it open for the block; None if it is one of a batch."""
    check_exists(spec)
    backend = choose_serial_backend(spec) if is_serial else choose_backend(spec)
    if spec.backend == "envpool":
        spaces, description = describe_pool(spec)
        yield EnvironmentFacts(spaces, backend, (), description), None
        return
    with _opened(spec) as env:
        yield _describe(env, spec, backend), env if backend.value == "gymnasium" else None


def find_spaces(spec: EnvSpec, log_path: Path = Path(os.devnull)) -> Spaces:
    """Return the spaces alone, for a benchmark. What the environment prints goes to the log."""
    with capture_output(log_path):
        if spec.backend == "envpool":
            return describe_pool(spec)[0]
        with _opened(spec) as env:
            return spaces_of(env, spec.name)


@contextlib.contextmanager
def _opened(spec: EnvSpec) -> Iterator[Env]:
    env = make_env(spec)
    try:
        yield env
    finally:
        with contextlib.suppress(Exception):  # a close that fails must not hide an error of the spaces
            env.close()


def _describe(env: Env, spec: EnvSpec, backend: Choice) -> EnvironmentFacts:
    metadata: Any = getattr(env, "metadata", None)
    modes = metadata.get("render_modes") if isinstance(metadata, Mapping) else None
    spaces = spaces_of(env, spec.name)  # first: it says what is not supported
    return EnvironmentFacts(spaces, backend, tuple(map(str, modes or ())), describe_environment(env, spec))
