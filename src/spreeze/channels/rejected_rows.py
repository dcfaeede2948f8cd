"""Rows that nothing can be learned from: their bounds, and the message that describes them."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from spreeze.channels.transitions import RowLayout

# No sane number is as large as this, and with smaller ones everything that is computed from them stays finite: at a
# discount of 0.99 rewards add up to a hundred times as much, and the squares of that, over a batch of 8192, to 8e37;
# a float32 ends at 3.4e38.
MAX_MAGNITUDE = 1e15
NOT_FINITE, TOO_LARGE = 1, 2


def is_usable(number: float) -> bool:
    """Return whether a return is a number that can be used, as rows have them. NaN is none."""
    return abs(number) <= MAX_MAGNITUDE


def what_was_rejected(env_name: str, layout: RowLayout, counters: NDArray[Any]) -> str:
    """Describe which environment gives unusable numbers, in which field, and how often until now."""
    what = "NaN or infinity" if counters["rejected_as"] == NOT_FINITE else f"numbers beyond {MAX_MAGNITUDE:.0e}"
    where, rows = layout.name_of(int(counters["rejected_column"])), int(counters["rows_rejected"])
    return f"{env_name} gives {what} in its {where}, in {rows} transition{'s' if rows != 1 else ''} so far"
