"""The only module besides `shell.py` that knows Ray: connect, see who is there, start agents and ask them.

Nothing here waits for long: a control service that is gone, or a machine that is cut off, would hold up all others.
What can only be asked in a blocking way is asked by a thread of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import logging
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray._private import services
from ray._private.state import available_resources_per_node
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from spreeze.cluster import shell
from spreeze.cluster.successions import Place, Successions
from spreeze.errors import ConfigError, one_line

LOOK_S = 1.0  # a look at who is there costs the control service a millisecond
# After the end of an agent its CPUs are free within moments, and the next one waits for a look that shows it.
SOON_S, SOON_FOR_S = 0.2, 10.0
CONNECT_S = 3.0
NAMESPACE = "spreeze"


@dataclass(frozen=True)
class Node:
    """Another machine of the cluster."""

    node_id: str
    """It has another one each time that it joins."""
    host: str
    cpus: int
    """All that it has given to the cluster, as of its memory."""
    free_cpus: int
    memory_bytes: int


@dataclass(frozen=True)
class Look:
    """Who was there at one moment."""

    at: float
    nodes: tuple[Node, ...]


def connect(address: str, modules: Sequence[str]) -> None:
    """Connect to a cluster; raise ConfigError if that is not possible. modules: files that travel to its machines.

    address: HOST:PORT of its control service, or "auto" for the cluster that this machine is in.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    found = _address_of(address)
    _require_answer(found)
    runtime_env = {"py_modules": [_path_of(module) for module in modules]} if modules else None
    try:
        ray.init(
            address=found,
            namespace=NAMESPACE,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env=runtime_env,
        )
    except Exception as error:  # of many kinds, and of versions that differ
        raise ConfigError(
            f"--cluster {address} cannot be used: {one_line(error)}; this machine has to be in the cluster too, by "
            f"`ray start --address={found}`"
        ) from None


def _address_of(address: str) -> str:
    """Return HOST:PORT of the control service."""
    try:
        found = services.canonicalize_bootstrap_address(address)
    except (ConnectionError, OSError, ValueError) as error:  # no cluster is known here; a host that has no address
        if address != "auto":
            raise ConfigError(f"--cluster {address} cannot be found: {one_line(error)}") from None
        found = None
    if found is None:
        raise ConfigError(
            "--cluster auto: this machine is in no Ray cluster, no control service was found: run `ray start --head` "
            "here, or `ray start --address=HEAD:6379`"
        )
    return found


def _require_answer(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--cluster: nothing answers at {address} ({one_line(error)}), where the cluster's control service should"
            " be: is it the address of `ray start --head`?"
        ) from None


def _path_of(module: str) -> str:
    """Return the file or the folder that a module is in."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # as where it is imported
    spec = importlib.util.find_spec(module.partition(".")[0])
    if spec is None or spec.origin is None:
        raise ConfigError(f"--cluster-ship: there is no file of the module '{module}' on this machine")
    path = Path(spec.origin)
    return str(path.parent if path.name == "__init__.py" else path)


class Membership:
    """Looks who is there once per second, and ends agents that are not wanted, in a thread of its own."""

    def __init__(self) -> None:

        self._own_id = ray.get_runtime_context().get_node_id()
        self._look: Look | None = None
        self._successions = Successions()
        self._to_kill: list[Any] = []
        self._soon_until = -math.inf
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name="membership", daemon=True).start()

    @property
    def look(self) -> Look | None:
        """The newest look; None before the first."""
        return self._look

    def kill(self, actor: Any) -> None:
        """Let an agent end, as soon as the control service answers."""
        self._soon_until = time.monotonic() + SOON_FOR_S
        with self._lock:
            self._to_kill.append(actor)

    def kill_now(self, seconds: float) -> None:
        """Wait at most so long until all are told to end."""
        deadline = time.monotonic() + seconds
        while self._to_kill and time.monotonic() < deadline:
            time.sleep(0.005)  # for the thread

    def _run(self) -> None:

        looked_at = -math.inf
        while True:
            with self._lock:
                actors = list(self._to_kill)
            for actor in actors:
                with contextlib.suppress(Exception):  # it has ended
                    ray.kill(actor)
            with self._lock:
                del self._to_kill[: len(actors)]
            now = time.monotonic()
            if now - looked_at >= (SOON_S if now < self._soon_until else LOOK_S):
                looked_at = now
                with contextlib.suppress(Exception):  # the control service is gone: the last look becomes old
                    self._look = self._look_now()
            time.sleep(0.02)  # until the next look, or the next agent to end

    def _look_now(self) -> Look:
        free = available_resources_per_node()
        alive = [node for node in ray.nodes() if node["Alive"]]
        gone = self._successions.gone(_places_of(alive))
        nodes = tuple(
            Node(
                node["NodeID"],
                node["NodeManagerHostname"],
                int(node["Resources"].get("CPU", 0)),
                int(free.get(node["NodeID"], {}).get("CPU", 0)),
                int(node["Resources"].get("memory", 0)),
            )
            for node in alive
            if node["NodeID"] != self._own_id and node["NodeID"] not in gone
        )
        return Look(time.monotonic(), nodes)


def _places_of(nodes: list[dict[str, Any]]) -> list[Place]:
    """Return where nodes listen, and since when where several say that it is the same place."""
    places = [Place(node["NodeID"], node["NodeManagerAddress"], node["NodeManagerPort"]) for node in nodes]
    if len({(place.address, place.port) for place in places}) == len(places):
        return places
    started = dict[str, float]()
    with contextlib.suppress(AttributeError):  # of a later version of Ray, which has no public way to ask this
        worker: Any = ray._private.worker.global_worker
        for node in worker.gcs_client.get_all_node_info(timeout=CONNECT_S).values():
            started[node.node_id.hex()] = node.start_time_ms / 1000
    return [dataclasses.replace(place, started_at=started.get(place.node_id, 0.0)) for place in places]


def start_agent(node_id: str, cpus: int) -> Any:
    """Start an agent on a machine; return its handle. It holds these CPUs, and is placed there or nowhere."""
    ray.cloudpickle.register_pickle_by_value(shell)  # a machine without Spreeze answers too
    # Nothing is tried again by Ray: a block that is asked for twice has a number, an agent that is started twice not.
    make: Any = ray.remote  # its types do not know concurrency groups
    remote = make(max_restarts=0, max_task_retries=0, concurrency_groups=shell.CONCURRENCY)(shell.AgentShell)
    return remote.options(
        num_cpus=cpus,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
    ).remote()


def ready_of(refs: list[Any], timeout_s: float) -> set[Any]:
    """Return the answers that are here, of one at least if there is one within the time; Ray fetches all of them."""
    if not refs:
        return set()
    count = 1 if timeout_s else len(refs)
    ready, _ = ray.wait(refs, num_returns=count, timeout=timeout_s)
    return set(ready)


def take(ref: Any) -> Any:
    """Return an answer that is here. Arrays in it are views of Ray's memory, which keep it there."""
    return ray.get(ref, timeout=CONNECT_S)


def put(content: Any) -> Any:
    """Let Ray keep something that several agents get."""
    return ray.put(content)
