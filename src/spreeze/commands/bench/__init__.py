"""Measurements that users can repeat: `spreeze bench`. Each compares figures of one run with each other."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def spread(rates: Sequence[float]) -> str:
    """Return median, lowest and highest of rates, as the benchmarks print them."""
    return f"{statistics.median(rates):>9,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


def seconds_text(seconds: float, is_bound: bool) -> str:
    """Say a time to a threshold; one that was not reached is only known to be longer than the limit: a bound."""
    return f">{f'{seconds:.1f}'.removesuffix('.0')} s" if is_bound else f"{seconds:.1f} s"
