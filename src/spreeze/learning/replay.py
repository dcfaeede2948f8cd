"""The replay: the learner's pool of transitions, on the learner's device, drawn from uniformly."""

from __future__ import annotations

import torch
from torch import Tensor

from spreeze.algorithms.batch import Batch
from spreeze.channels.transitions import RowLayout, Rows
from spreeze.learning.normalisation import Normaliser
from spreeze.learning.transfers import Staging

_INDEX_RANGE = 2**62  # so much larger than any replay that the remainder of a drawn number is uniform


class Replay:
    """A ring of rows: the newest overwrite the oldest."""

    def __init__(
        self, layout: RowLayout, capacity_rows: int, device: torch.device, normaliser: Normaliser | None = None
    ) -> None:
        self._layout, self._normaliser = layout, normaliser
        # Not zeroed: on a CPU its pages become resident as they are written, so memory grows with the experience.
        # One tensor of words: a draw gathers each row in one piece, and its fields are views in their own types.
        self._rows = torch.empty(capacity_rows, layout.width, device=device)
        # Also on the device: a captured draw reads there how many rows it may draw from.
        self._count = torch.zeros((), dtype=torch.int64, device=device)
        self._staging = Staging(layout.width, device) if device.type == "cuda" else None
        self._written = self._claimed = 0
        self._never_here = 0  # rows that have a number and were lost with a damaged checkpoint
        self._marked: torch.cuda.Event | None = None
        self._copies: torch.cuda.Stream | None = None

    def __len__(self) -> int:
        return min(self._written, len(self._rows))

    @property
    def written(self) -> int:
        """The number of the next row: how many were ever added, with those that a damaged checkpoint has lost."""
        return self._never_here + self._written

    @property
    def first_row(self) -> int:
        """The number of the first row that was ever here."""
        return self._never_here

    @property
    def capacity(self) -> int:
        """Rows that it holds at most."""
        return len(self._rows)

    @property
    def width(self) -> int:
        """Words in a row."""
        return self._layout.width

    def add(self, rows: Rows) -> None:
        """Copy rows in; on a GPU they can be drawn after the next `flush`. The caller may overwrite its own."""
        if self._staging is None:
            self._append(torch.from_numpy(rows))
            return
        while len(rows):
            fitting = rows[: self._staging.room()]
            self._staging.collect(fitting)
            rows = rows[len(fitting) :]
            if not self._staging.room():
                self.flush()

    def flush(self) -> None:
        """Send added rows to the GPU without waiting: updates launched from now on draw from them too."""
        if self._staging is None:
            return
        block = self._staging.send()
        if block is not None:
            self._append(block)
            self._staging.done()

    def draw(self, batch_size: int, generator: torch.Generator | None = None) -> Batch:
        """Draw rows uniformly, with replacement."""
        numbers = torch.randint(_INDEX_RANGE, (batch_size,), device=self._rows.device, generator=generator)
        rows = self._rows.index_select(0, numbers.remainder_(self._count))  # (batch, row_width)
        layout = self._layout
        action = rows[:, layout.action]
        batch = Batch(
            rows[:, layout.observation],
            action if layout.action_type == "float32" else action.view(torch.int32),
            rows[:, layout.reward],
            rows[:, layout.next_observation],
            rows[:, layout.terminated],
            rows[:, layout.discount],
        )
        if self._normaliser is None:
            return batch
        return batch._replace(
            observation=self._normaliser(batch.observation), next_observation=self._normaliser(batch.next_observation)
        )

    def mark(self) -> None:
        """Mark the rows written until now: `copy_out` may copy them."""
        if self._staging is not None:
            self._marked = torch.cuda.Event()
            self._marked.record()

    def copy_out(self, first_row: int, into: Tensor) -> int:
        """Copy rows to the host while updates run, from any thread.

        Return how many of them, the first ones, were overwritten meanwhile.
        """
        first_row -= self._never_here
        capacity, count = len(self._rows), len(into)
        at = first_row % capacity
        before_end = min(count, capacity - at)
        pieces = ((into[:before_end], at), (into[before_end:], 0))
        if self._staging is None:
            for piece, start in pieces:
                piece.copy_(self._rows[start : start + len(piece)])
        else:
            if self._copies is None:
                self._copies = torch.cuda.Stream(self._rows.device)
            if self._marked is not None:
                self._copies.wait_event(self._marked)
            with torch.cuda.stream(self._copies):
                for piece, start in pieces:
                    piece.copy_(self._rows[start : start + len(piece)], non_blocking=True)
                arrived = torch.cuda.Event(blocking=True)
                arrived.record()
            arrived.synchronize()
        return min(count, max(0, self._claimed - capacity - first_row))

    def put_back(self, first_row: int, rows: Rows) -> None:
        """Restore rows of a checkpoint, oldest first and without a gap; rows that are too old to be held make room.

        first_row: decides on their places. `count_from` has to follow the last of them.
        """
        self._written = self._claimed = first_row
        self.add(rows)
        self.flush()
        self._count.fill_(len(self))

    def count_from(self, number: int) -> None:
        """Give the next row this number, after rows of a checkpoint were restored without those that are lost."""
        self._never_here = number - self._written

    def _append(self, rows: Tensor) -> None:
        capacity, before = len(self._rows), len(self)
        for block in rows.split(capacity):
            at = self._written % capacity
            before_end = min(len(block), capacity - at)
            self._claimed = self._written + len(block)  # before a row is touched: another thread may be reading
            self._rows[at : at + before_end] = block[:before_end]
            self._rows[: len(block) - before_end] = block[before_end:]
            self._written += len(block)
        if len(self) != before:
            self._count.fill_(len(self))
