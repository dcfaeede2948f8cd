"""A machine and its agents, one after the other: who gets one when, and what the run is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_agent import LAYOUT, STATE, VERSIONS, FakeActor, rows
from numpy.typing import NDArray

from spreeze.channels.machines import MachinesChannel, MachineState
from spreeze.channels.metrics import MetricsChannel
from spreeze.channels.transitions import RingChannel
from spreeze.cluster.link import AgentLink
from spreeze.cluster.machine import AgentStart, Machine, free_slot
from spreeze.cluster.versions import PACKAGES


class Cluster:
    """One machine, and the agents that were started on it."""

    def __init__(self) -> None:
        self.channel, self.records = RingChannel("ring"), MachinesChannel(0, 2).records
        self.channel.allocate(LAYOUT, 100)
        self.started: list[tuple[str, int]] = []
        self.actors: list[FakeActor] = []
        self.ended: list[Any] = []
        self.told: list[tuple[str, bool]] = []
        self.tracebacks: list[str] = []
        self.versions: dict[str, Any] = VERSIONS
        agents = AgentStart(self._start, lambda *_: b"", self._link, self.ended.append, is_adapted=False)
        sampler = MetricsChannel().samplers[:1]
        self.machine = Machine("alpha", self.channel, self.records[:1], sampler, agents, self._tell)

    def _start(self, node_id: str, cpus: int) -> FakeActor:
        self.started.append((node_id, cpus))
        self.actors.append(FakeActor())
        self.actors[-1].versions = self.versions
        return self.actors[-1]

    def _link(self, actor: Any, channel: RingChannel, machine: NDArray[Any], sampler: NDArray[Any]) -> AgentLink:
        return AgentLink(actor, actor.take, channel, machine, sampler, PACKAGES)

    def _tell(self, reason: str, is_warning: bool = False, traceback: str = "") -> None:
        self.told.append((reason, is_warning))
        self.tracebacks.append(traceback)

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            if (link := self.machine.link) is not None:
                link._pulse_due_at = 0.0  # no test waits for the time of a pulse
                self.machine.turn(set(link.under_way), lambda _: STATE)

    @property
    def state(self) -> MachineState:
        return MachineState(int(self.records["state"][0]))


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.machine.arrive("node-1")
    return made


def sample(cluster: Cluster, count: int = 5) -> None:
    cluster.turn(3)
    cluster.actors[-1].sample(rows(0, count))
    cluster.turn(3)


def test_a_machine_with_free_cpus_gets_one_agent_that_holds_them(cluster: Cluster) -> None:
    cluster.machine.start_if_due(0, 0)
    assert cluster.started == []
    for _ in range(2):
        cluster.machine.start_if_due(3, 3)
    assert (cluster.started, cluster.state) == ([("node-1", 3)], MachineState.JOINING)
    sample(cluster)
    assert cluster.state == MachineState.AT_WORK
    assert cluster.told == [("alpha samples, with 1 samplers", False)]


def test_a_machine_with_other_versions_is_refused_once_in_one_line(cluster: Cluster) -> None:
    cluster.versions = {**VERSIONS, "packages": {**VERSIONS["packages"], "mujoco": "0.0.1"}}
    cluster.machine.start_if_due(3, 3)
    cluster.turn(2)
    assert cluster.state == MachineState.REFUSED
    assert cluster.ended == cluster.actors
    ((reason, is_warning),) = cluster.told
    assert is_warning
    assert "alpha has mujoco 0.0.1" in reason
    cluster.machine.start_if_due(3, 3)
    assert len(cluster.started) == 1
    cluster.versions = VERSIONS
    cluster.machine.leave()
    cluster.machine.arrive("node-2")  # it was started again, perhaps with what was missing
    cluster.machine.start_if_due(3, 3)
    assert cluster.started[-1] == ("node-2", 3)


def test_a_machine_that_leaves_costs_what_it_had_not_sent_and_is_used_again(cluster: Cluster) -> None:
    cluster.machine.start_if_due(2, 2)
    sample(cluster)
    cluster.actors[-1].written += 4
    cluster.turn()
    cluster.machine.leave()
    assert (cluster.state, cluster.machine.is_away) == (MachineState.AWAY, True)
    assert cluster.told[-1] == ("alpha is lost: it has left the cluster; 4 of its rows are lost", True)
    cluster.machine.arrive("node-2")
    cluster.machine.start_if_due(2, 2)
    sample(cluster)
    assert cluster.told[-1] == ("alpha samples again, with 1 samplers", False)
    assert (cluster.records["rows_sampled"][0], cluster.records["rows_lost"][0]) == (14, 4)


def test_a_machine_whose_environment_fails_is_left_alone_for_minutes(cluster: Cluster) -> None:
    cluster.machine.start_if_due(2, 2)
    cluster.turn(3)
    cluster.actors[-1].failure = ("sampler 0 failed: no power", "Traceback")
    cluster.turn()
    assert cluster.machine.failure == ("sampler 0 failed: no power", "Traceback")
    assert cluster.told == [("alpha is not used for now: sampler 0 failed: no power", True)]
    assert cluster.tracebacks == ["Traceback"]
    cluster.machine.start_if_due(2, 2)
    assert (len(cluster.started), cluster.state) == (1, MachineState.REFUSED)


def test_warnings_of_an_agent_are_told_with_the_name_of_its_machine(cluster: Cluster) -> None:
    cluster.machine.start_if_due(2, 2)
    cluster.turn(3)
    cluster.actors[-1].warnings = (("sampler 1 failed, another takes its place: it hangs", ""),)
    cluster.turn()
    assert ("alpha: sampler 1 failed, another takes its place: it hangs", True) in cluster.told


def test_a_machine_has_the_record_that_it_had_before() -> None:
    records = MachinesChannel(0, 3).records
    records[1]["name"], records[1]["state"] = b"alpha", MachineState.AWAY
    assert free_slot(records, "alpha", set()) == 1
    assert free_slot(records, "beta", set()) == 0
    assert free_slot(records, "beta", {0, 2}) is None
    assert np.flatnonzero(records["state"]).tolist() == [1]
