"""The replay: the learner's pool of transitions, on the learner's device, drawn from uniformly."""

from __future__ import annotations

import torch

from spreeze.algorithms.batch import Batch
from spreeze.channels.transitions import RowLayout, Rows


class Replay:
    """A ring of rows: the newest overwrite the oldest."""

    def __init__(self, layout: RowLayout, capacity_rows: int, device: torch.device, seed: int) -> None:
        self._layout = layout
        # Not zeroed: on a CPU its pages become resident as they are written, so memory grows with the experience.
        self._rows = torch.empty(capacity_rows, layout.width, device=device)
        self._generator = torch.Generator(device).manual_seed(seed)
        self._written = 0

    def __len__(self) -> int:
        return min(self._written, len(self._rows))

    def add(self, rows: Rows) -> None:
        """Copy rows in. The caller may overwrite its own afterwards."""
        capacity = len(self._rows)
        for begin in range(0, len(rows), capacity):
            block = torch.from_numpy(rows[begin : begin + capacity])
            at = self._written % capacity
            before_end = min(len(block), capacity - at)
            self._rows[at : at + before_end] = block[:before_end]
            self._rows[: len(block) - before_end] = block[before_end:]
            self._written += len(block)

    def draw(self, batch_size: int) -> Batch:
        """Draw rows uniformly, with replacement."""
        index = torch.randint(len(self), (batch_size,), generator=self._generator, device=self._rows.device)
        rows = self._rows.index_select(0, index)  # (batch, row_width)
        layout = self._layout
        return Batch(
            rows[:, layout.observation],
            rows[:, layout.action],
            rows[:, layout.reward],
            rows[:, layout.next_observation],
            rows[:, layout.terminated],
            rows[:, layout.discount],
        )
