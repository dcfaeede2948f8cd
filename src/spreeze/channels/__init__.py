"""The channels of a run: everything that crosses a process boundary, and nothing else does.

samplers  -- transitions -->  learner
learner   -- weights ----->   samplers, evaluator, viewer
viewer    -- frames ------>   dashboard
learner   <- parameters ->    learner, where it is on two devices
everyone  -- metrics ----->   supervisor (and the ratio between samplers and learner)
everyone  <- control ----->   supervisor
supervisor -- listener -->    dashboard
gateway   -- machines ---->   supervisor, where a run has other machines
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spreeze.channels.control import ControlChannel
from spreeze.channels.frames import FramesChannel
from spreeze.channels.listener import ListenerChannel
from spreeze.channels.machines import MachinesChannel, MachineState, settle
from spreeze.channels.metrics import MetricsChannel
from spreeze.channels.parameters import MailboxChannel
from spreeze.channels.transitions import TransitionChannel
from spreeze.channels.weights import WeightsChannel

Channel = (
    TransitionChannel
    | WeightsChannel
    | MetricsChannel
    | ControlChannel
    | MailboxChannel
    | FramesChannel
    | ListenerChannel
    | MachinesChannel
)


@dataclass(frozen=True)
class Channels:
    """All channels of a run, as sent to each of its processes."""

    transitions: tuple[TransitionChannel, ...]
    """One for each sampler of this machine that there may be, then one for each other machine."""
    weights: WeightsChannel
    metrics: MetricsChannel
    control: ControlChannel
    to_actor: MailboxChannel = field(default_factory=lambda: MailboxChannel("to-actor"))
    to_critic: MailboxChannel = field(default_factory=lambda: MailboxChannel("to-critic"))

    frames: FramesChannel = field(default_factory=FramesChannel)
    listener: ListenerChannel = field(default_factory=ListenerChannel)
    machines: MachinesChannel = field(default_factory=MachinesChannel)

    @property
    def rings_here(self) -> int:
        """How many of the channels of transitions are for samplers of this machine."""
        return len(self.transitions) - self.machines.count

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a child has to inherit to open all of them."""
        return tuple(fd for channel in self._all() for fd in channel.descriptors)

    def settle_machines(self) -> None:
        """Put the records of all other machines right when there is no gateway to them: their agents end with it."""
        for ring, record in self.machines.read():
            if record.state in (MachineState.JOINING, MachineState.AT_WORK):
                slot = ring - self.machines.first_ring
                machine = self.machines.records[slot : slot + 1]
                machine["state"] = MachineState.AWAY
                settle(self.transitions[ring], machine, self.metrics.samplers[ring : ring + 1])

    def close(self) -> None:
        """Let go of all descriptors, at the end of a run."""
        for channel in self._all():
            channel.close()

    def _all(self) -> tuple[Channel, ...]:
        return (
            *self.transitions,
            self.weights,
            self.metrics,
            self.control,
            self.to_actor,
            self.to_critic,
            self.frames,
            self.listener,
            self.machines,
        )
