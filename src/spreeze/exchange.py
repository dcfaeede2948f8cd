"""What crosses between the two sides of a learner that is split: parameters, and nothing else.

The critics' side sends its critics, which the actor climbs on; the actor's side sends the actor and the temperature,
which the critics' targets need. No batch crosses: each side has a replay of its own, fed from the same rings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze.algorithms.sac import Sac
from spreeze.channels.parameters import Letter
from spreeze.child import ChildSpec
from spreeze.transfers import Readback


class Exchange:
    """One side's end of both mailboxes."""

    def __init__(self, spec: ChildSpec, algorithm: Sac, counters: NDArray[Any]) -> None:
        self._algorithm, self._counters = algorithm, counters
        to_actor, to_critic = spec.channels.to_actor, spec.channels.to_critic
        outbox, inbox = (to_actor, to_critic) if algorithm.part == "critic" else (to_critic, to_actor)
        self._outbox, self._inbox = outbox.writer(), inbox.reader()
        self._interval = spec.config.learning.exchange_updates
        self._readback = Readback()
        self._sent = self._reading = 0
        is_cuda = algorithm.device.type == "cuda"
        self._received = torch.empty(sum(t.numel() for t in algorithm.others()), pin_memory=is_cuda)
        self._copied = torch.cuda.Event() if is_cuda else None

    def turn(self, launched: int) -> None:
        """Send what is due and has arrived on the host; take over what has come. Nobody waits."""
        if launched - self._sent >= self._interval:
            self._sent = self._reading = launched
            self._readback.start({"own": self._own()})
        self._post(self._readback.take(), ())
        letter = self._inbox.newest()
        if letter is not None:
            self.take_over(letter)

    def send(self, launched: int, numbers: tuple[int, ...] = ()) -> None:
        """Send the parameters as they are after this many updates, with numbers beside them."""
        self._reading = launched
        self._readback.start({"own": self._own()})
        self._post(self._readback.take(wait=True), numbers)

    def wait(self, stopping: Callable[[], bool]) -> Letter | None:
        """Wait for the other side's next letter."""
        return self._inbox.wait(stopping)

    def take_over(self, letter: Letter) -> None:
        """Use the other side's parameters from the next update on."""
        if self._copied is not None:
            self._copied.synchronize()  # the copy before this one; it was queued many updates ago
        self._received.copy_(torch.from_numpy(letter.parameters))
        at = 0
        for tensor in self._algorithm.others():
            # In the order of the updates: those already launched still use the old ones.
            tensor.copy_(self._received[at : at + tensor.numel()], non_blocking=True)
            at += tensor.numel()
        if self._copied is not None:
            self._copied.record()
        self._counters["others_updates"] = letter.updates
        self._counters["exchanged_bytes"] += letter.parameters.nbytes

    def _own(self) -> torch.Tensor:
        return torch.cat([tensor.detach() for tensor in self._algorithm.own()])

    def _post(self, arrived: dict[str, NDArray[np.float32]] | None, numbers: tuple[int, ...]) -> None:
        if arrived is not None:
            self._outbox.send(arrived["own"], self._reading, numbers)
