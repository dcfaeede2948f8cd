"""`spreeze bench`: measurements that users can repeat. Each compares figures that it measured itself."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def spread(rates: Sequence[float]) -> str:
    """Return median, lowest and highest of rates as text."""
    return f"{statistics.median(rates):>9,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


def seconds_text(seconds: float, is_bound: bool) -> str:
    """Return a time to a threshold as text. is_bound: it was not reached, so the time is a lower bound."""
    return f">{f'{seconds:.1f}'.removesuffix('.0')} s" if is_bound else f"{seconds:.1f} s"
