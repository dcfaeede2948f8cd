"""Exchanges parameters between the two sides of a split learner, and nothing else.

The critics' side sends its critics, whose gradient the actor follows; the actor's side sends the actor and what
learns with it, which the critics' targets need. No batch is sent: each side has a replay of its own, fed from the
same rings.

Where the sides run freely, each sends after every `exchange_updates` and makes at most `max_lag_updates` with the
same copy of the other's parameters, then it waits for newer ones. Both cannot wait for ever: a side that waits
has made max_lag_updates >= exchange_updates since it last took something over, so it has sent, and the other takes
that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze.algorithms.actor_critic import ActorCritic
from spreeze.channels.brief import Brief
from spreeze.channels.parameters import ParameterMessage
from spreeze.learning.transfers import Readback


class Exchange:
    """One side's end of both mailboxes."""

    def __init__(self, brief: Brief, algorithm: ActorCritic, counters: NDArray[Any]) -> None:
        self._algorithm, self._counters = algorithm, counters
        is_cuda = algorithm.device.type == "cuda"
        to_actor, to_critic = brief.channels.to_actor, brief.channels.to_critic
        outbox, inbox = (to_actor, to_critic) if algorithm.updates_critic else (to_critic, to_actor)
        # Messages are copied from the mailbox to pinned memory, from where the GPU can fetch them.
        self._received = torch.empty(sum(tensor.numel() for tensor in algorithm.others()), pin_memory=is_cuda)
        self._fetched = torch.cuda.Event() if is_cuda else None
        self._outbox, self._inbox = outbox.writer(), inbox.reader(self._received.numpy())
        self._interval = brief.config.learning.updates_per_exchange
        self._max_lag = brief.config.learning.max_lag_updates
        self._readback = Readback()
        self._sent_at = self._took_over_at = 0

    def turn(self, launched: int) -> None:
        """Send parameters that are due and have arrived on the host; take over received ones. Never waits."""
        # While a copy to the host is still queued behind updates, another would only delay it.
        if launched - self._sent_at >= self._interval and not self._readback.is_under_way:
            self._start(launched)
        self._post(self._readback.take())
        if self._fetched is None or self._fetched.query():
            message = self._inbox.newest()
            if message is not None:
                self.take_over(message)
                self._took_over_at = launched

    def start_at(self, launched: int) -> None:
        """Count from this many updates, those of a checkpoint."""
        self._sent_at = self._took_over_at = launched

    def updates_allowed(self, launched: int) -> int:
        """Return how many more updates may use the current copy."""
        return max(0, self._took_over_at + self._max_lag - launched)

    def send(self, launched: int, numbers: tuple[int, ...] = ()) -> None:
        """Send the parameters as they are after this many updates, together with numbers."""
        self._start(launched)
        self._post(self._readback.take(wait=True), numbers)

    def wait(self, stopping: Callable[[], bool]) -> ParameterMessage | None:
        """Wait for the other side's next message."""
        if self._fetched is not None:
            self._fetched.synchronize()
        return self._inbox.wait(stopping)

    def take_over(self, message: ParameterMessage) -> None:
        """Use the other side's parameters from the next update on: those already launched still use the old ones."""
        at = 0
        for tensor in self._algorithm.others():
            tensor.copy_(self._received[at : at + tensor.numel()], non_blocking=True)
            at += tensor.numel()
        if self._fetched is not None:
            self._fetched.record()
        self._counters["others_updates"] = message.updates
        self._counters["exchanged_bytes"] += message.parameters.nbytes

    def _start(self, launched: int) -> None:
        self._sent_at = launched
        self._readback.start({"own": torch.cat([tensor.detach() for tensor in self._algorithm.own()])})

    def _post(self, arrived: dict[str, NDArray[np.float32]] | None, numbers: tuple[int, ...] = ()) -> None:
        if arrived is not None:
            self._outbox.send(arrived["own"], self._sent_at, numbers)
