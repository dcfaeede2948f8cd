"""Which implementation of each channel a run uses.

Runs of many processes share memory, and runs in one process have their own. Benchmarks plug in others to compare
them with these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from spreeze.channels import Channels
from spreeze.channels.control import ControlChannel
from spreeze.channels.frames import FramesChannel
from spreeze.channels.machines import MachinesChannel
from spreeze.channels.memory import MakeSegment, PrivateSegment, SharedSegment
from spreeze.channels.metrics import MetricsChannel
from spreeze.channels.parameters import MailboxChannel
from spreeze.channels.transitions import RingChannel, TransitionChannel
from spreeze.channels.weights import WeightsChannel


@dataclass(frozen=True)
class Transport:
    """Factories of channels. What they make must be importable by name in child processes."""

    make_transitions: Callable[[str, int], TransitionChannel] = RingChannel
    """From a name and the number of readers, for one sampler."""
    make_weights: Callable[[Path], WeightsChannel] = WeightsChannel
    """From the folder of the weights."""
    make_segment: MakeSegment = SharedSegment
    """The memory of all other channels."""

    def make_channels(self, samplers: int, learners: int, weights_folder: Path, machines: int = 0) -> Channels:
        """Make all channels of a run, for as many samplers and other machines as there may be at most."""
        memory = self.make_segment
        return Channels(
            tuple(self.make_transitions(f"ring-{index}", learners) for index in range(samplers + machines)),
            self.make_weights(weights_folder),
            MetricsChannel(memory),
            ControlChannel(memory),
            MailboxChannel("to-actor", memory),
            MailboxChannel("to-critic", memory),
            FramesChannel(memory),
            machines=MachinesChannel(samplers, machines, memory),
        )


DEFAULT_TRANSPORT = Transport()
PRIVATE_TRANSPORT = Transport(
    partial(RingChannel, make_segment=PrivateSegment),
    partial(WeightsChannel, make_segment=PrivateSegment),
    PrivateSegment,
)
"""For a run in one process: the same channels in memory of its own. Weights are files as ever."""
