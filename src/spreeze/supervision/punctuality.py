"""Turns the record of a clock into figures: how many steps were late, and how late steps started.

In: the record, read once per second. Out: a `Punctuality`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.metrics import KEPT_STEPS
from spreeze.runs.records import Lateness, Punctuality

# Of the whole run, numbers are kept in classes of 2.5%, from a microsecond to 100 s: a day at 50 steps per second
# would be 35 MB otherwise.
EDGES_S = np.geomspace(1e-6, 100.0, 751)


class ClockReader:
    """Remembers which steps it has seen: a window is from one reading to the next."""

    def __init__(self, record: NDArray[Any]) -> None:
        """record: an array of one `metrics.CLOCK`."""
        self._record = record[0]
        self._seen = int(self._record["steps"])
        self._counts = np.zeros(len(EDGES_S), np.int64)

    def read(self) -> Punctuality:
        """Read what has been counted since the last time, and in all."""
        steps = int(self._record["steps"])
        first = max(self._seen, steps - KEPT_STEPS + 1)  # the oldest one may be overwritten right now
        newest = self._record["lateness_s"][np.arange(first, steps) % KEPT_STEPS]
        self._seen = steps
        self._counts += np.bincount(np.searchsorted(EDGES_S[1:-1], newest), minlength=len(EDGES_S))
        return Punctuality(
            steps=steps,
            late_steps=int(self._record["late_steps"]),
            last_second=_of_all(newest) if len(newest) else None,
            run=self._of_run() if steps else None,
            waits_for_person=bool(self._record["waits_for_person"]),
        )

    def _of_run(self) -> Lateness:
        cumulated, longest_s = np.cumsum(self._counts), float(self._record["longest_s"])
        places = np.searchsorted(cumulated, np.array([0.5, 0.99]) * cumulated[-1])
        p50_s, p99_s = np.minimum(EDGES_S[np.minimum(places + 1, len(EDGES_S) - 1)], longest_s)
        return _lateness(p50_s, p99_s, longest_s)


def _of_all(lateness_s: NDArray[np.float64]) -> Lateness:
    p50_s, p99_s = np.percentile(lateness_s, (50, 99))
    return _lateness(p50_s, p99_s, lateness_s.max())


def _lateness(p50_s: float, p99_s: float, max_s: float) -> Lateness:
    return Lateness(round(float(p50_s), 6), round(float(p99_s), 6), round(float(max_s), 6))
