"""The Ray actor that holds an agent. Sent to machines as text, since Spreeze may be missing there.

`hello` says what is installed; only then `begin` imports Spreeze. This module imports the standard library and Ray.
"""

from __future__ import annotations

import importlib
import os
import platform
import socket
from importlib import metadata
from typing import Any

import ray


class AgentShell:
    """One agent. Its methods run in threads of their own, so that a slow one holds up no other."""

    def __init__(self) -> None:
        self._agent: Any = None

    @ray.method(concurrency_group="control")
    def hello(self, packages: tuple[str, ...]) -> dict[str, Any]:
        """Return the name of the machine, and which versions of these packages it has ("" for none)."""
        return {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "python": platform.python_version(),
            "packages": {package: _version(package) for package in packages},
        }

    @ray.method(concurrency_group="control")
    def begin(self, order: bytes, kind: str = "spreeze.cluster.agent:Agent") -> None:
        """Start samplers. order: an `AgentOrder`, by cloudpickle. kind: the class of the agent, by its name."""
        module, _, name = kind.partition(":")
        self._agent = getattr(importlib.import_module(module), name)(order, _session_folder())

    @ray.method(concurrency_group="control")
    def pulse(self, state: tuple[Any, ...]) -> tuple[Any, ...]:
        """Take a `HeadState`, return an `AgentReport`."""
        answer: tuple[Any, ...] = self._agent.pulse(state)
        return answer

    @ray.method(concurrency_group="blocks")
    def next_block(self, number: int, acknowledged: int) -> tuple[Any, ...] | None:
        """Return a `relay.Block` by its number, or None if there is none yet."""
        block: tuple[Any, ...] | None = self._agent.next_block(number, acknowledged)
        return block

    @ray.method(concurrency_group="weights")
    def take_weights(self, version: int, content: list[Any]) -> None:
        """Take a version of the weights. content: a list of one reference, so that this call does not wait for it."""
        self._agent.take_weights(version, ray.get(content[0]))

    @ray.method(concurrency_group="control")
    def finish(self) -> None:
        """Let samplers end and deliver what they have; what is left then is in the last blocks."""
        self._agent.finish()


CONCURRENCY = {"control": 1, "blocks": 6, "weights": 1}


def _session_folder() -> str:
    """Return the folder that Ray has on this machine for as long as its node is there; "" if it is not found."""
    try:
        node: Any = ray._private.worker._global_node
        return str(node.get_session_dir_path())
    except AttributeError:  # of a later version of Ray
        return ""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
