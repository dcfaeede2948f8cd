"""One other machine of a run: which agent it has, and when it gets another.

In: the nodes of the cluster. Out: an agent on each machine that has CPUs to give and the same versions, and messages
about those that join, fail or leave. A machine that was lost is used again when it is back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.machines import MAX_NAME_BYTES, MachineState, settle
from spreeze.channels.transitions import RingChannel
from spreeze.cluster.demand import Demand
from spreeze.cluster.link import AgentFailed, AgentLink, Ref, Stage
from spreeze.cluster.orders import HeadState
from spreeze.cluster.versions import own_versions, why_unfit
from spreeze.supervision.restart_policy import SAMPLED_S, RestartPolicy

PATIENCE = 1_000_000  # a machine that was lost is always wanted again, after pauses of half a minute at most


class Report(Protocol):
    """Tells the supervisor what happens to a machine."""

    def __call__(self, reason: str, is_warning: bool = False, traceback: str = "") -> None:
        """Record an event."""
        ...


@dataclass(frozen=True)
class AgentStart:
    """How a machine gets an agent."""

    start: Callable[[str, int], Any]
    """From the node's id and how many CPUs it is to hold; returns its actor."""
    order: Callable[[str, int, int], bytes]
    """What it begins with: from the machine's name, how many samplers it is to have, and the rows known of it."""
    link: Callable[[Any, RingChannel, NDArray[Any], NDArray[Any]], AgentLink]
    end: Callable[[Any], None]
    """Ends an actor."""
    is_adapted: bool
    """Whether it is asked for fewer samplers where they only wait."""


class Machine:
    """A machine, as one record, one ring and one agent at a time."""

    def __init__(
        self,
        name: str,
        channel: RingChannel,
        record: NDArray[Any],
        sampler: NDArray[Any],
        agents: AgentStart,
        report: Report,
    ) -> None:
        """record, sampler: arrays of one."""
        self.name = name
        self._channel, self._record, self._sampler = channel, record, sampler
        self._agents, self._report = agents, report
        self.link: AgentLink | None = None
        self.node_id = ""
        self.unfit: str | None = None
        """Why it cannot be used as it is, if it cannot."""
        self.failure: tuple[str, str] | None = None
        """Why its last agent had no samplers any more, with a traceback or nothing."""
        self._demand = Demand(1)
        self._restarts, self._started_at = RestartPolicy(PATIENCE), 0.0
        self._stepped_at: float | None = None
        self._has_joined = False
        record["name"], record["state"] = name.encode()[:MAX_NAME_BYTES], MachineState.JOINING
        settle(channel, record, sampler)  # a gateway that was killed has left it as it was

    @property
    def is_away(self) -> bool:
        """Whether it has no agent, and no node that could have one."""
        return self.link is None and not self.node_id

    @property
    def samplers(self) -> int:
        """How many its agent is to have."""
        return self._demand.samplers

    def arrive(self, node_id: str) -> None:
        """Use this node from now on."""
        self.node_id, self.unfit, self._restarts = node_id, None, RestartPolicy(PATIENCE)

    def leave(self) -> None:
        """Its node has left the cluster."""
        if self.link is not None:
            self._lose("it has left the cluster")
        self.node_id = ""
        self._record["state"] = MachineState.AWAY

    def start_if_due(self, cpus: int, samplers: int) -> None:
        """Start an agent if there is none, the pause after the last failure is over and there are CPUs."""
        if self.link is not None or self.unfit is not None or cpus < 1 or not self.node_id:
            return
        if not self._restarts.may_start(time.monotonic()):
            return
        self._demand, self._started_at, self._stepped_at = Demand(samplers), time.monotonic(), None
        actor = self._agents.start(self.node_id, cpus)
        self.link = self._agents.link(actor, self._channel, self._record, self._sampler)
        self._record["state"] = MachineState.JOINING

    def turn(self, ready: set[Ref], state: Callable[[int], HeadState]) -> None:
        """Take what has arrived from its agent."""
        link = self.link
        if link is None:
            return
        try:
            link.turn(ready, state)
        except AgentFailed as failure:
            self._lose(str(failure))
            return
        for reason, traceback in self._take_warnings(link):
            self._report(f"{self.name}: {reason}", is_warning=True, traceback=traceback)
        if link.stage == Stage.GREETING and link.greeting:
            self._take_greeting(link)
        elif link.report is not None:
            self._look_at(link)

    def _take_warnings(self, link: AgentLink) -> list[tuple[str, str]]:
        warnings, link.warnings = link.warnings, []
        return warnings

    def _take_greeting(self, link: AgentLink) -> None:
        self.unfit = why_unfit(self.name, link.greeting, own_versions())
        if self.unfit is None:
            link.begin(self._agents.order(self.name, self.samplers, int(self._record["rows_sampled"][0])))
            return
        self._record["state"] = MachineState.REFUSED
        self._report(f"{self.unfit}; the run goes on without it", is_warning=True)
        self._end_agent()

    def _look_at(self, link: AgentLink) -> None:
        now, report = time.monotonic(), link.report
        assert report is not None
        if report.failure is not None:
            self.failure = reason, traceback = report.failure
            self._restarts.give_up(now)  # samplers were tried several times there: it is tried again in minutes
            self._report(f"{self.name} is not used for now: {reason}", is_warning=True, traceback=traceback)
            self._end_agent()
            self._record["state"] = MachineState.REFUSED
            return
        if report.has_stepped and self._stepped_at is None:
            self._stepped_at = now
            again = " again" if self._has_joined else ""
            self._has_joined, self.failure = True, None
            self._report(f"{self.name} samples{again}, with {report.samplers} samplers")
        if self._agents.is_adapted and (change := self._demand.turn(now, report.samplers, link.waits)):
            self._report(f"{self.name}: {change}")
        if self._stepped_at is not None and now - self._stepped_at >= SAMPLED_S:
            self._restarts.record_productive(self._started_at)

    def _lose(self, reason: str) -> None:
        if self._stepped_at is None or time.monotonic() - self._stepped_at < SAMPLED_S:
            self._restarts.record_failure(time.monotonic(), self._started_at)
        lost = self._end_agent()
        self._record["state"] = MachineState.AWAY
        rows = f"; {lost} of its rows are lost" if lost else ""
        self._report(f"{self.name} is lost: {reason}{rows}", is_warning=True)

    def finish(self) -> None:
        """Let its samplers end, and what they have written be delivered."""
        if self.link is not None:
            self.link.finish()

    @property
    def has_delivered(self) -> bool:
        """Whether nothing more comes from it."""
        return self.link is None or self.link.stage in (Stage.DELIVERED, Stage.GREETING, Stage.BEGINNING)

    def close(self) -> None:
        """End its agent, with what it has not delivered."""
        if self.link is not None:
            lost = self._end_agent()
            if lost:
                self._report(f"{self.name}: {lost} of its rows had not arrived when the run ended")

    def _end_agent(self) -> int:
        assert self.link is not None
        lost = self.link.settle()
        self._agents.end(self.link.actor)
        self.link = None
        return lost


def free_slot(records: NDArray[Any], name: str, taken: set[int]) -> int | None:
    """Return the record for a machine: the one that it had before, an unused one, or none."""
    own = np.flatnonzero(records["name"] == name.encode()[:MAX_NAME_BYTES])
    unused = np.flatnonzero(records["state"] == MachineState.UNUSED)
    return next((int(slot) for slot in (*own, *unused) if int(slot) not in taken), None)
