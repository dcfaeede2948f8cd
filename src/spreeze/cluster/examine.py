"""Says what each machine of a cluster has: CPUs, memory, versions, and what of that keeps a run from using it."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import Any

from spreeze.cluster import ray_cluster
from spreeze.cluster.ray_cluster import Membership, Node
from spreeze.cluster.versions import PACKAGES, own_versions, why_unfit

ANSWER_S = 60.0  # for Ray to start a process on each machine, all at once
POLL_S = 0.05


@dataclass(frozen=True)
class MachineReport:
    """What one machine has."""

    name: str
    cpus: int
    free_cpus: int
    memory_bytes: int
    versions: str
    """In one line; empty where it has not answered."""
    problem: str | None
    """Why a run cannot use it; None if it can."""


def examine_cluster(address: str) -> list[MachineReport]:
    """Ask each other machine of a cluster what it has; raise ConfigError if the cluster cannot be reached."""
    ray_cluster.connect(address, ())
    membership = Membership()
    deadline = time.monotonic() + ANSWER_S
    while (look := membership.look) is None and time.monotonic() < deadline:
        time.sleep(POLL_S)  # for the membership's thread
    nodes = () if look is None else look.nodes
    agents = [ray_cluster.start_agent(node.node_id, 0) for node in nodes]
    questions = [agent.hello.remote(PACKAGES) for agent in agents]
    answered = set[Any]()
    while len(answered) < len(questions) and time.monotonic() < deadline:
        answered |= ray_cluster.ready_of([ref for ref in questions if ref not in answered], 1.0)
    reports = [_report(node, ref, ref in answered) for node, ref in zip(nodes, questions, strict=True)]
    for agent in agents:
        membership.kill(agent)
    membership.kill_now(ray_cluster.CONNECT_S)
    return reports


def _report(node: Node, question: Any, is_answered: bool) -> MachineReport:
    greeting: dict[str, Any] | None = None
    with contextlib.suppress(Exception):  # the machine has left, or Ray could start no process there
        greeting = ray_cluster.take(question) if is_answered else None
    versions, problem = "", f"{node.host} has not answered within {ANSWER_S:g} s"
    if greeting is not None:
        packages = [f"{package} {version or 'missing'}" for package, version in greeting["packages"].items()]
        versions = ", ".join([f"Python {greeting['python']}", *packages])
        unfit = why_unfit(node.host, greeting, own_versions())
        problem = unfit or ("" if node.free_cpus else f"{node.host} has no free CPU")
    return MachineReport(node.host, node.cpus, node.free_cpus, node.memory_bytes, versions, problem or None)
