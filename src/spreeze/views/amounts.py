"""Amounts as a terminal shows them: rates, sizes and durations, short enough for a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_SHOWN = 1e18  # a few times what bytes, transitions and returns of a run can be


def number(line: Mapping[str, Any] | None, name: str) -> float | None:
    """Return a field as a number that there is room for, or None: a damaged journal may hold anything."""
    value = None if line is None else line.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_SHOWN:
        return None
    return float(value)


def rate(per_second: float) -> str:
    """Return a rate, without its unit."""
    if per_second >= 1e6:
        return f"{per_second / 1e6:.2f}M"
    if per_second >= 10_000:
        return f"{per_second / 1e3:.1f}k"
    return f"{per_second:,.0f}"


def byte_text(count: int) -> str:
    """Return a size, with its unit."""
    return f"{count / 2**30:.2f} GB" if count >= 2**30 else f"{count / 2**20:.0f} MB"


def clock(seconds: float) -> str:
    """Return a duration as minutes and seconds, with hours if there are any."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"
