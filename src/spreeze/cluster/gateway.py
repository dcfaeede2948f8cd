"""The gateway: the process of a run that asks the agents on other machines, and writes their rows into rings here.

In: the cluster's address in the brief, counters of the run, versions of the weights. Out: rows in the machines'
rings, counters, and messages about machines that join or leave. It is optional: what Ray does to a process that has
lost its cluster costs the run this one alone, which is started again. No other process of a run imports Ray.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from spreeze.channels.brief import Brief
from spreeze.channels.control import MessageWriter
from spreeze.channels.transitions import RingChannel
from spreeze.channels.weights import MAX_FILE_BYTES, run_of, version_path
from spreeze.cluster.availability import require_ray
from spreeze.cluster.link import AgentLink, Ref
from spreeze.cluster.machine import AgentStart, Machine, free_slot
from spreeze.cluster.orders import AgentOrder, HeadState
from spreeze.cluster.versions import PACKAGES
from spreeze.errors import ConfigError
from spreeze.host.files import read_bounded

# Imported while the supervisor is still busy. Where Ray is missing, that is told once there is a brief.
with contextlib.suppress(ImportError):
    from spreeze.cluster import ray_cluster

WAIT_S = 0.02  # for the next answer; rows are taken at once when they are there
SEND_WEIGHTS_S = 0.25  # as often as a learner publishes by default: agents get no more than the newest
FIRST_LOOK_S = 10.0  # for the control service to say who is there
OLD_LOOK_S = 5.0  # a look that is older: the control service does not answer
FINISH_S = 2.0  # for the last rows of all machines


def run(brief: Brief, messages: MessageWriter) -> None:
    """Use all machines of the cluster until dismissed or stopped."""
    control = brief.channels.control
    control.beat(brief.slot)
    address = brief.config.cluster.cluster
    assert address is not None, "a run on one machine has no gateway"
    modules = brief.env.modules if brief.config.cluster.cluster_ship else ()
    try:
        require_ray()
        ray_cluster.connect(address, modules)
        gateway = Gateway(brief, messages, ray_cluster.Membership())
        gateway.await_first_look()
    except ConfigError as refusal:
        if brief.channels.machines.read():
            raise  # the cluster was there before, and may be back: it is tried again
        messages.send("refused", reason=str(refusal))
        return
    while not control.dismissed(brief.slot):
        control.beat(brief.slot)
        gateway.turn()
    gateway.finish()


class Gateway:
    """All other machines of a run."""

    def __init__(self, brief: Brief, messages: MessageWriter, membership: Any) -> None:
        self._brief, self._messages, self._membership = brief, messages, membership
        self._channels, self._control = brief.channels, brief.channels.control
        self._machines: dict[int, Machine] = {}
        """By the slots of their records."""
        self._seen_at, self._is_silent = 0.0, False
        self._weights = _WeightsSender(brief)
        is_adapted = brief.config.adaptation.adapt and brief.config.cluster.cluster_samplers == "auto"
        self._agents = AgentStart(ray_cluster.start_agent, self._order, self._link, membership.kill, is_adapted)
        self._has_worked = bool(self._channels.machines.read())
        self._has_warned_of_room = self._has_failed = False

    # --- start and end -----------------------------------------------------------------------------------------

    def await_first_look(self) -> None:
        """Wait until it is known who is there; raise ConfigError if nobody has CPUs to give."""
        deadline = time.monotonic() + FIRST_LOOK_S
        while self._membership.look is None and time.monotonic() < deadline:
            self._control.beat(self._brief.slot)
            time.sleep(WAIT_S)  # for the membership's thread
        look, where = self._membership.look, f"--cluster {self._brief.config.cluster.cluster}"
        if self._has_worked:
            return
        if look is None:
            raise ConfigError(f"{where}: its control service does not say who is there: is `ray status` in order?")
        if not look.nodes:
            raise ConfigError(f"{where}: there is no other machine in it: run `ray start --address=...` on one")
        if not any(node.free_cpus for node in look.nodes):
            raise ConfigError(
                f"{where}: no other machine has a free CPU: see `ray status`, or --num-cpus of `ray start`"
            )

    def finish(self) -> None:
        """Take the last rows of all machines, as far as they come in time, and end all agents."""
        for machine in self._machines.values():
            machine.finish()
        deadline = time.monotonic() + FINISH_S
        while time.monotonic() < deadline and not all(machine.has_delivered for machine in self._machines.values()):
            self._control.beat(self._brief.slot)
            self._take_answers()
        for machine in self._machines.values():
            machine.close()
        self._membership.kill_now(1.0)

    # --- turns -------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Look who is there, if that has changed, take what has arrived, and send what is new."""
        self._look()
        self._take_answers()
        self._weights.turn([machine.link for machine in self._machines.values() if machine.link is not None])
        self._refuse_if_none_is_fit()
        self._fail_if_nobody_can_sample()

    def _take_answers(self) -> None:
        links = [machine.link for machine in self._machines.values() if machine.link is not None]
        under_way = [ref for link in links for ref in link.under_way]
        ready = ray_cluster.ready_of(under_way, 0.0)
        awaited = [ref for link in links for ref in link.awaited]
        if not ready.intersection(awaited):
            if awaited:
                ready |= ray_cluster.ready_of(awaited, WAIT_S)
            else:
                time.sleep(WAIT_S)  # for the learner to make room, or for a machine to join
        for machine in self._machines.values():
            machine.turn(ready, self._state_for(machine))

    def _state_for(self, machine: Machine) -> Callable[[int], HeadState]:
        def state(reported_steps: int) -> HeadState:
            learner, samplers = self._channels.metrics.learner[0], self._channels.metrics.samplers
            everyone = int(samplers["env_steps"].sum()) + int(learner["steps_offset"])
            return HeadState(
                updates=int(learner["updates"]),
                steps_elsewhere=everyone - reported_steps,
                steps_ahead=int(learner["steps_ahead"]),
                envs_at_work=self._control.envs_at_work,
                samplers=machine.samplers,
            )

        return state

    def _look(self) -> None:
        look, now = self._membership.look, time.monotonic()
        is_silent = look is None or now - look.at > OLD_LOOK_S
        if is_silent != self._is_silent:
            self._is_silent = is_silent
            what = "does not answer: machines that leave are not replaced" if is_silent else "answers again"
            self._event(f"the cluster's control service {what}", is_warning=is_silent)
        if look is None or is_silent:
            return
        if look.at != self._seen_at:
            self._seen_at = look.at
            self._match(look.nodes)
        for node in look.nodes:
            for machine in self._machines.values():
                if machine.node_id == node.node_id:
                    samplers = self._samplers_on(node)
                    machine.start_if_due(min(samplers, node.free_cpus), samplers)

    def _samplers_on(self, node: Any) -> int:
        wanted = self._brief.config.cluster.cluster_samplers
        return int(node.free_cpus) if wanted == "auto" else int(wanted)

    def _match(self, nodes: Any) -> None:
        """Let machines have their nodes, new ones and those that are back."""
        there = {node.node_id for node in nodes}
        for machine in self._machines.values():
            if machine.node_id and machine.node_id not in there:
                machine.leave()
        known = {machine.node_id for machine in self._machines.values()}
        for node in nodes:
            if node.node_id in known or not node.cpus:
                continue
            if (arrived := self._machine_for(node.host)) is not None:
                arrived.arrive(node.node_id)

    def _machine_for(self, host: str) -> Machine | None:
        """Return the machine of this name that is away, or a new one; None if there is no room for it."""
        names = {machine.name for machine in self._machines.values() if not machine.is_away}
        name = next(name for name in (host, *(f"{host}-{n}" for n in range(2, 1000))) if name not in names)
        for machine in self._machines.values():
            if machine.name == name:
                return machine
        records = self._channels.machines.records
        slot = free_slot(records, name, set(self._machines))
        if slot is None:
            if not self._has_warned_of_room:
                self._has_warned_of_room = True
                self._event(f"{name} is left out: a run has at most {len(records)} other machines", is_warning=True)
            return None
        ring = self._channels.machines.first_ring + slot
        channel = self._channels.transitions[ring]
        assert isinstance(channel, RingChannel), "machines write into rings"
        sampler = self._channels.metrics.samplers[ring : ring + 1]
        self._machines[slot] = Machine(name, channel, records[slot : slot + 1], sampler, self._agents, self._event)
        return self._machines[slot]

    def _refuse_if_none_is_fit(self) -> None:
        """End the run that has not begun if all machines that were there at its start are unfit."""
        if self._has_worked:
            return
        machines = list(self._machines.values())
        self._has_worked = any(machine.link is not None and machine.link.report is not None for machine in machines)
        if machines and all(machine.unfit is not None for machine in machines):
            self._messages.send("refused", reason=f"--cluster: {machines[0].unfit}")
            self._has_worked = True

    def _fail_if_nobody_can_sample(self) -> None:
        """End a run whose samplers are all on other machines, and fail on each of them."""
        machines = list(self._machines.values())
        if self._has_failed or self._brief.config.sampling.samplers or not machines:
            return
        failures = [machine.failure for machine in machines if machine.failure is not None]
        if failures and all(machine.failure is not None or machine.unfit is not None for machine in machines):
            self._has_failed = True
            reason, traceback = failures[0]
            self._messages.send("failed", reason=f"no other machine can sample: {reason}", traceback=traceback)

    # --- agents ------------------------------------------------------------------------------------------------

    def _order(self, name: str, samplers: int, rows_sampled: int) -> bytes:
        config, brief = self._brief.config, self._brief
        number = self._channels.machines.count_agent()
        resumed_at = int(self._channels.metrics.learner["steps_offset"][0])  # sessions differ in it
        seed = int(np.random.SeedSequence([config.seed, resumed_at, number]).generate_state(1)[0])
        config = config.replace(seed=seed)
        session = hashlib.sha256(f"{brief.run_dir} {brief.started_at} {name}".encode()).hexdigest()[:16]
        order = AgentOrder(
            name, config, brief.env, brief.spaces, brief.policy_kind, samplers, f"spreeze-{session}", rows_sampled
        )
        return bytes(cloudpickle.dumps(order))

    def _link(self, actor: Any, channel: RingChannel, machine: NDArray[Any], sampler: NDArray[Any]) -> AgentLink:
        return AgentLink(actor, ray_cluster.take, channel, machine, sampler, PACKAGES)

    def _event(self, reason: str, is_warning: bool = False, traceback: str = "") -> None:
        details = {"traceback": traceback} if traceback else {}
        self._messages.record_event("warning" if is_warning else "machine", reason, **details)


class _WeightsSender:
    """Sends each version to all agents, as one object of Ray's; of versions that follow closely, the newest."""

    def __init__(self, brief: Brief) -> None:
        self._folder = brief.channels.weights.folder
        self._number = brief.channels.weights.open_version()
        self._version, self._due_at = 0, 0.0
        self._content: Ref = None

    def turn(self, links: list[AgentLink]) -> None:
        """Send the newest version to who has an older one."""
        newest, now = int(self._number[0]), time.monotonic()
        if newest != self._version and now >= self._due_at:
            self._due_at = now + SEND_WEIGHTS_S
            with contextlib.suppress(OSError):  # it was deleted because newer ones are there: next time
                content = read_bounded(version_path(self._folder, newest), MAX_FILE_BYTES, run_of(self._folder))
                # Agents hold what they have not read yet; otherwise Ray forgets the version before here.
                self._version, self._content = newest, ray_cluster.put(np.frombuffer(content, np.uint8))
        for link in links:
            if self._version and link.version != self._version and link.takes_weights:
                link.send_weights(self._version, self._content)
