"""Reads the rows of all samplers, and rejects those that nothing can be learnt from.

In: the channels of transitions. Out: blocks of rows whose numbers are finite and sane; or an error that says what is
wrong, once too many rows were rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.brief import Brief
from spreeze.channels.rejected_rows import MAX_MAGNITUDE, NOT_FINITE, TOO_LARGE, what_was_rejected
from spreeze.channels.transitions import RowLayout, Rows
from spreeze.errors import UnusableData

# An environment that gives this share of unusable rows is broken rather than unlucky: judged first after
# VERDICT_ROWS, and then in windows long enough that a few lost episodes do not decide.
MAX_REJECTED_SHARE, VERDICT_ROWS, WINDOW_ROWS = 0.5, 1000, 100_000


class Intake:
    """Takes rows out of the channels, and rejects those with a number that is NaN, infinite or absurdly large."""

    def __init__(self, brief: Brief, layout: RowLayout, counters: NDArray[Any], reader: int) -> None:
        # Of all channels that there may ever be; the orders say which of them have had a writer.
        self._readers = [channel.reader(reader) for channel in brief.channels.transitions]
        self._control = brief.channels.control
        self._layout, self._env_name = layout, brief.env.name
        self._is_all_numbers = layout.is_all_numbers
        self._counters = counters
        # Samplers may stop at the end of the warm-up until there is an update: more rows may never come.
        self._due_rows = min(VERDICT_ROWS, brief.config.sampling.warmup_steps)
        self._seen = self._rejected = 0

    def positions(self) -> tuple[int, ...]:
        """Return how many rows were ever taken of each ring."""
        return tuple(reader.position for reader in self._readers[: self._control.rings])

    def usable_rows(self, until: Sequence[int] | None = None) -> Iterator[Rows]:
        """Yield blocks of rows, up to given positions or all there are; each is valid until the next is asked for."""
        ends = [None] * self._control.rings if until is None else until
        for reader, end in zip(self._readers, ends, strict=False):
            for rows in reader.read(end):
                if not len(rows):
                    continue  # a queue carries blocks without rows too
                # An index or a byte of an image cannot be wrong.
                numbers = rows if self._is_all_numbers else rows[:, self._layout.numbers]
                # Two passes over the block are enough where all rows are usable.
                if numbers.min() >= -MAX_MAGNITUDE and numbers.max() <= MAX_MAGNITUDE:  # false for a NaN too
                    usable = rows
                else:
                    is_sane = _is_sane(numbers)
                    usable = rows[is_sane.all(axis=1)]
                    self._describe(numbers, is_sane)
                yield usable
                self._counters["rows_stored"] += len(usable)
                self._counters["rows_rejected"] += len(rows) - len(usable)
                self._judge(len(rows), len(rows) - len(usable))
                self._counters["rows_consumed"] += len(rows)

    def _describe(self, numbers: NDArray[np.float32], is_sane: NDArray[np.bool_]) -> None:
        """Store what is wrong with the first row that was rejected, for the messages about it."""
        if not self._counters["rejected_as"][0]:
            column = int(np.argmin(is_sane.all(axis=0)))
            self._counters["rejected_column"] = column
            self._counters["rejected_as"] = TOO_LARGE if np.isfinite(numbers[:, column]).all() else NOT_FINITE

    def _judge(self, seen: int, rejected: int) -> None:
        self._seen += seen
        self._rejected += rejected
        if self._seen < self._due_rows:
            return
        if self._rejected > MAX_REJECTED_SHARE * self._seen:
            what = what_was_rejected(self._env_name, self._layout, self._counters[0])
            raise UnusableData(f"{what}; of the last {self._seen} transitions, {self._rejected} could not be used")
        if self._seen >= WINDOW_ROWS:
            self._seen, self._rejected, self._due_rows = 0, 0, WINDOW_ROWS


def _is_sane(numbers: NDArray[np.float32]) -> NDArray[np.bool_]:
    return np.abs(numbers) <= MAX_MAGNITUDE  # false for a NaN
