"""Asynchronous copies between host and GPU: through pinned memory, while updates run.

`Staging` brings rows to the GPU on a stream of its own. `Readback` brings a few tensors back; its owner polls whether
they have arrived. `Flight` bounds how many launches the host is ahead of the GPU. On a CPU none of them costs
anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spreeze.channels.transitions import Rows

STAGING_BYTES = 8 * 2**20  # a twentieth of a second of experience at 1 GB/s; three of them exist
STAGING_BUFFERS = 3


@dataclass
class _Buffer:
    host: Tensor
    device: Tensor
    arrived: torch.cuda.Event
    """The copy has reached the GPU: the host's half may be written again."""
    taken: torch.cuda.Event
    """The rows were copied into the replay: the GPU's half may be written again."""


class Staging:
    """Collects rows in pinned memory and copies them to the GPU while updates run."""

    def __init__(self, width: int, device: torch.device) -> None:
        rows = max(1, STAGING_BYTES // (4 * width))
        self._stream = torch.cuda.Stream(device)
        self._buffers = [
            _Buffer(
                torch.empty(rows, width, pin_memory=True),
                torch.empty(rows, width, device=device),
                torch.cuda.Event(),
                torch.cuda.Event(),
            )
            for _ in range(STAGING_BUFFERS)
        ]
        self._views = [buffer.host.numpy() for buffer in self._buffers]
        self._current, self._filled = 0, 0

    def room(self) -> int:
        """Return how many rows fit before the next `send`."""
        return len(self._views[self._current]) - self._filled

    def collect(self, rows: Rows) -> None:
        """Take rows, at most as many as there is room for. The caller may overwrite its own afterwards."""
        view = self._views[self._current]
        view[self._filled : self._filled + len(rows)] = rows
        self._filled += len(rows)

    def send(self) -> Tensor | None:
        """Return what was collected, on the GPU, valid on the current stream until `done` is called."""
        if not self._filled:
            return None
        buffer = self._buffers[self._current]
        here = torch.cuda.current_stream()
        self._stream.wait_event(buffer.taken)
        with torch.cuda.stream(self._stream):
            block = buffer.device[: self._filled]
            block.copy_(buffer.host[: self._filled], non_blocking=True)
            buffer.arrived.record()
        here.wait_event(buffer.arrived)
        return block

    def done(self) -> None:
        """Record that the work which uses the last block has been queued; continue with the next buffer."""
        self._buffers[self._current].taken.record()
        self._current = (self._current + 1) % STAGING_BUFFERS
        self._filled = 0
        # Rarely waits: the copies of two buffers before it would have to be still under way.
        self._buffers[self._current].arrived.synchronize()


class Readback:
    """A few tensors on their way to the host."""

    def __init__(self) -> None:
        self._host: dict[str, Tensor] = {}
        self._arrived: torch.cuda.Event | None = None
        self.is_under_way = False

    def start(self, tensors: Mapping[str, Tensor]) -> None:
        """Queue copies behind the work that is under way; the same names and shapes each time."""
        for name, tensor in tensors.items():
            if name not in self._host:
                self._host[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            self._host[name].copy_(tensor, non_blocking=True)
            if tensor.is_cuda and self._arrived is None:
                self._arrived = torch.cuda.Event()
        if self._arrived is not None:
            self._arrived.record()
        self.is_under_way = True

    def take(self, wait: bool = False) -> dict[str, NDArray[np.float32]] | None:
        """Return the tensors once they have arrived. They are valid until the next start."""
        if not self.is_under_way:
            return None
        if self._arrived is not None:
            if wait:
                self._arrived.synchronize()
            elif not self._arrived.query():
                return None
        self.is_under_way = False
        return {name: tensor.numpy() for name, tensor in self._host.items()}


class Flight:
    """Launches that the GPU has not finished yet: the host is at most AHEAD of them ahead.

    Two keep the GPU busy while the host does something else for the length of a launch. On a CPU none is under way.
    """

    AHEAD = 2

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        self._under_way: deque[tuple[torch.cuda.Event, int]] = deque()

    def add(self, count: int) -> int:
        """Add a launch of this many updates; return how many have been finished since the last call."""
        if not self._is_cuda:
            return count
        # Blocking: a spinning wait would take a core from the samplers.
        event = torch.cuda.Event(blocking=True)
        event.record()
        self._under_way.append((event, count))
        return self.finished(self.AHEAD)

    def finished(self, ahead: int = 0) -> int:
        """Wait until at most this many launches are under way; return the updates finished since the last call."""
        done = 0
        while self._under_way and (len(self._under_way) > ahead or self._under_way[0][0].query()):
            event, count = self._under_way.popleft()
            event.synchronize()
            done += count
        return done
