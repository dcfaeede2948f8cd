"""What a learner takes in: rows of all samplers, less those that nothing can be learnt from.

In: the channels of transitions. Out: blocks of rows that are finite; or an error that says what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.transitions import RowLayout, Rows
from spreeze.child import ChildSpec

# An environment that gives this share of unusable rows, after this many, is broken rather than unlucky.
MAX_REJECTED_SHARE, VERDICT_ROWS = 0.5, 1000


class Intake:
    """Takes rows out of the channels, and keeps out those with a NaN or an infinity."""

    def __init__(self, spec: ChildSpec, layout: RowLayout, counters: NDArray[Any], reader: int) -> None:
        # Of all channels there may ever be; which of them have had a writer, the orders say.
        self._readers = [channel.reader(reader) for channel in spec.channels.transitions]
        self._control = spec.channels.control
        self._layout = layout
        self._counters = counters
        # Samplers may stop at the end of the warm-up until there is an update: more rows may never come.
        self._verdict_rows = min(VERDICT_ROWS, spec.config.sampling.warmup_steps)

    def positions(self) -> tuple[int, ...]:
        """Return how many rows were ever taken of each ring."""
        return tuple(reader.position for reader in self._readers[: self._control.rings])

    def usable_rows(self, until: Sequence[int] | None = None) -> Iterator[Rows]:
        """Yield blocks of rows, up to given positions or all there are; each is valid until the next is asked for."""
        ends = [None] * self._control.rings if until is None else until
        for reader, end in zip(self._readers, ends, strict=False):
            for rows in reader.read(end):
                finite = np.isfinite(rows).all(axis=1)
                usable = rows if finite.all() else rows[finite]
                yield usable
                self._counters["rows_stored"] += len(usable)
                if len(usable) < len(rows):
                    self._reject(rows[~finite])
                self._counters["rows_consumed"] += len(rows)

    def _reject(self, rows: Rows) -> None:
        self._counters["rows_rejected"] += len(rows)
        rejected, stored = int(self._counters["rows_rejected"][0]), int(self._counters["rows_stored"][0])
        if rejected + stored >= self._verdict_rows and rejected > MAX_REJECTED_SHARE * (rejected + stored):
            column = int(np.argmin(np.isfinite(rows).all(axis=0)))
            raise ValueError(
                f"the environment gives NaN or infinity in its {self._layout.name_of(column)}: "
                f"{rejected} of {rejected + stored} transitions could not be used"
            )
