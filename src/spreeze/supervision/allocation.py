"""Gives the channels of a run their sizes, once the environment is known."""

from __future__ import annotations

from itertools import pairwise

from spreeze.channels import Channels
from spreeze.channels.spaces import Spaces
from spreeze.channels.transitions import RowLayout
from spreeze.config import Config, LearningConfig
from spreeze.config.own_settings import find_algorithm

MACHINE_TIMES = 8  # a machine has one ring for all its samplers: with 16 MB for each, the room of eight


def allocate_channels(channels: Channels, config: Config, spaces: Spaces) -> None:
    """Give the channels their sizes."""
    layout = RowLayout.of(spaces)
    for index, channel in enumerate(channels.transitions):
        # Memory that nobody has written to costs nothing: there is a ring for every sampler there may ever be.
        times = 1 if index < channels.rings_here else MACHINE_TIMES
        channel.allocate(layout, times * int(config.sampling.ring_rows))
    room = _most_parameters(layout, spaces.choices, config.learning, find_algorithm(config.algo).critics)
    channels.weights.allocate(4 * room)
    if config.learning.is_split:
        for mailbox in (channels.to_actor, channels.to_critic):
            mailbox.allocate(room)


def _most_parameters(layout: RowLayout, choices: tuple[int, ...], learning: LearningConfig, critics: int) -> int:
    """Return a number that the parameters of actor or critics stay below; what is not written costs no memory."""
    outputs = max(2 * layout.action_size, (1 + sum(choices)) * learning.atoms)
    widths = (layout.observation_size + layout.action_size, *learning.hidden, outputs)
    one = sum((a + 1) * (b + 1) for a, b in pairwise(widths)) + 2 * sum(learning.hidden)
    return max(4, 2 * critics) * one + 1024
