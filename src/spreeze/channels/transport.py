"""Which implementation of each data channel a run uses. Benchmarks plug in others to compare them with these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from spreeze.channels.transitions import RingChannel, TransitionChannel
from spreeze.channels.weights import WeightsChannel


@dataclass(frozen=True)
class Transport:
    """Factories of the channels that carry data. What they make must be importable by name in child processes."""

    make_transitions: Callable[[str, int], TransitionChannel] = RingChannel
    """From a name and the number of readers, for one sampler."""
    make_weights: Callable[[Path], WeightsChannel] = WeightsChannel
    """From the folder of the weights."""


DEFAULT_TRANSPORT = Transport()
