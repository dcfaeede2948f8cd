"""Amounts as a terminal shows them: rates, sizes and durations, short enough for a line."""

from __future__ import annotations


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
