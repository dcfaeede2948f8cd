"""`spreeze bench cluster`: what the way from other machines into the rings of this one carries.

On each machine a writer fills a ring as fast as it can, in the samplers' place. What follows is what a run does: an
agent makes blocks of the rows, Ray carries them, and this process writes them into rings here. A reader in the
learner's place checks the number and the checksum of every row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import numpy as np

from spreeze.channels.machines import MACHINE
from spreeze.channels.metrics import SAMPLER
from spreeze.channels.spaces import ContinuousActions, Spaces
from spreeze.channels.transitions import RingChannel
from spreeze.cluster.link import AgentFailed, AgentLink, Stage
from spreeze.cluster.orders import AgentOrder, HeadState
from spreeze.cluster.versions import PACKAGES, own_versions, why_unfit
from spreeze.commands.bench.cluster_ends import FLOODING_AGENT, layout_of, start_end, stop_end
from spreeze.commands.bench.machine import write_benchmark
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.errors import ConfigError, RunFailed
from spreeze.host.output_files import require_writable

RING_BYTES = 16 << 20  # on each machine, as of a sampler
RING_BYTES_HERE = 128 << 20  # as of a machine in a run
SETTLE_S = 1.0  # until rings and the way between them are as full as they will be
START_LIMIT_S, DELIVERY_LIMIT_S, LOOK_LIMIT_S = 60.0, 30.0, 10.0
WAIT_S = 0.02
ALONE = HeadState(updates=0, steps_elsewhere=0, steps_ahead=0, envs_at_work=1, samplers=1)


@dataclass(frozen=True)
class RelayFigures:
    """What arrived from all machines together."""

    row_bytes: int
    rows_hz: float
    mb_s: float
    """Millions of bytes per second."""
    cpu_share: float
    """CPU seconds of this process, without the reader, per second."""
    round_trip_ms: float
    """Of a question that is answered at once, while rows travel: the median of those during the measurement."""
    rows: int
    """All rows, of which each arrived once: the bench fails otherwise."""


class _Machine:
    """A machine of the cluster, its ring here and the agent on it."""

    def __init__(self, cluster: ModuleType, node: Any, row_bytes: int) -> None:
        self.host: str = node.host
        self._cluster, self._layout = cluster, layout_of(row_bytes)
        self.ring = RingChannel("bench")
        self.ring.allocate(self._layout, RING_BYTES_HERE // row_bytes)
        self.record, sampler = np.zeros(1, MACHINE), np.zeros(1, SAMPLER)
        self.actor = cluster.start_agent(node.node_id, 1)
        starting = _Flooding(self.actor)
        self.link = AgentLink(starting, cluster.take, self.ring, self.record, sampler, PACKAGES)

    def turn(self, ready: set[Any]) -> None:
        """Take what has arrived; raise if the machine is of no use."""
        try:
            self.link.turn(ready, lambda _steps: ALONE)
        except AgentFailed as failure:
            raise RunFailed(f"{self.host} is lost: {failure}") from None
        if self.link.stage == Stage.GREETING and self.link.greeting:
            if (unfit := why_unfit(self.host, self.link.greeting, own_versions())) is not None:
                raise ConfigError(f"--cluster: {unfit}")
            self.link.begin(self._order())

    def _order(self) -> bytes:
        layout = self._layout
        config = Config("?").replace(ring_rows=RING_BYTES // layout.row_bytes, envs_per_sampler=1)
        action = np.zeros(layout.action_size, np.float32)
        actions = ContinuousActions(action, action, action.shape)
        spaces = Spaces({"kind": "box", "shape": [layout.observation_size]}, actions)
        return bytes(cloudpickle.dumps(AgentOrder(self.host, config, EnvSpec("?"), spaces, "gaussian", 1)))


class _Flooding:
    """An actor that begins with another kind of agent."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self.begin = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._actor, name)

    def remote(self, order: bytes) -> Any:
        """Begin."""
        return self._actor.begin.remote(order, FLOODING_AGENT)


def bench_cluster(address: str, sizes: Sequence[int], seconds: float, json_path: Path | None) -> None:
    """Measure each size of a row, print the rates and write what is wanted."""
    json_path = require_writable(json_path)
    try:
        from spreeze.cluster import ray_cluster
    except ImportError as error:
        raise ConfigError(f'this benchmark needs Ray ({error}): run `pip install "spreeze[ray]"`') from None
    ray_cluster.connect(address, ())
    membership = ray_cluster.Membership()
    nodes = _nodes_with_room(membership, address)
    print(f"rows from {', '.join(node.host for node in nodes)}")
    figures = [_measure(ray_cluster, membership, nodes, size, seconds) for size in sizes]
    for each in figures:
        print(
            f"{each.row_bytes:>7,} bytes  {each.rows_hz:>12,.0f} rows/s  {each.mb_s:>8,.0f} MB/s  "
            f"{each.cpu_share:.2f} cores here  {each.round_trip_ms:.1f} ms there and back"
        )
    about = {"machines": len(nodes), "seconds": seconds, "ray": metadata.version("ray")}
    write_benchmark(json_path, "cluster", {**about, "figures": [asdict(each) for each in figures]})


def _nodes_with_room(membership: Any, address: str) -> list[Any]:
    deadline = time.monotonic() + LOOK_LIMIT_S
    while membership.look is None and time.monotonic() < deadline:
        time.sleep(WAIT_S)  # for the membership's thread
    nodes = [] if membership.look is None else [node for node in membership.look.nodes if node.free_cpus]
    if not nodes:
        raise ConfigError(f"--cluster {address}: no other machine has a free CPU: see `ray status`")
    return nodes


def _measure(cluster: ModuleType, membership: Any, nodes: Sequence[Any], size: int, seconds: float) -> RelayFigures:
    machines = [_Machine(cluster, node, size) for node in nodes]
    reader = start_end("read", layout_of(size).width, *(machine.ring for machine in machines))
    try:
        _turn_until(cluster, machines, lambda: all(_arrived(machine) for machine in machines), START_LIMIT_S)
        _turn_for(cluster, machines, SETTLE_S)
        before, began, cpu_s = sum(map(_arrived, machines)), time.monotonic(), time.process_time()
        round_trips = _turn_for(cluster, machines, seconds)
        spent_s, cpu_s = time.monotonic() - began, time.process_time() - cpu_s
        rows_hz = (sum(map(_arrived, machines)) - before) / spent_s
        for machine in machines:
            machine.link.finish()
        delivered = (Stage.DELIVERED,)
        _turn_until(cluster, machines, lambda: all(m.link.stage in delivered for m in machines), DELIVERY_LIMIT_S)
        while not all(machine.ring.is_empty() for machine in machines):
            time.sleep(WAIT_S)  # for the reader
    finally:
        wrong = stop_end(reader)
        for machine in machines:
            membership.kill(machine.actor)
            machine.ring.close()
        membership.kill_now(LOOK_LIMIT_S)
    rows, sampled = sum(map(_arrived, machines)), sum(int(machine.record["rows_sampled"][0]) for machine in machines)
    if int(wrong) or rows != sampled:
        raise RunFailed(f"of {sampled} rows {rows} arrived, {int(wrong)} of them damaged or out of place")
    median_ms = 1000 * float(np.median(round_trips))
    return RelayFigures(size, rows_hz, rows_hz * size / 1e6, cpu_s / spent_s, median_ms, rows)


def _turn_for(cluster: ModuleType, machines: Sequence[_Machine], seconds: float) -> list[float]:
    """Take what arrives for so long; return the round trips that were measured meanwhile, in seconds."""
    deadline, round_trips = time.monotonic() + seconds, list[float]()
    while time.monotonic() < deadline:
        _turn(cluster, machines)
        round_trips += [float(machine.record["round_trip_s"][0]) for machine in machines]
    return round_trips


def _turn_until(
    cluster: ModuleType, machines: Sequence[_Machine], condition: Callable[[], bool], limit_s: float
) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            stages = ", ".join(f"{machine.host} {machine.link.stage.name.lower()}" for machine in machines)
            raise RunFailed(f"nothing has happened for {limit_s:.0f} s: {stages}")
        _turn(cluster, machines)


def _turn(cluster: ModuleType, machines: Sequence[_Machine]) -> None:
    """Do what a turn of the gateway does."""
    links = [machine.link for machine in machines]
    ready: set[Any] = cluster.ready_of([ref for link in links for ref in link.under_way], 0.0)
    awaited = [ref for link in links for ref in link.awaited]
    if not ready.intersection(awaited):
        if awaited:
            ready |= cluster.ready_of(awaited, WAIT_S)
        else:
            time.sleep(WAIT_S)  # for the reader to make room
    for machine in machines:
        machine.turn(ready)


def _arrived(machine: _Machine) -> int:
    """Return how many rows have arrived from a machine."""
    return machine.ring.written() or 0
