"""Measurements that users can repeat: `spreeze bench`. Each compares figures of one run with each other."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def spread(rates: Sequence[float]) -> str:
    """Return median, lowest and highest of rates, as the benchmarks print them."""
    return f"{statistics.median(rates):>9,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"
