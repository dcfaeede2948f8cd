"""How tables and pictures write figures: Markdown tables, medians with their range, rates, times, machines."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [f"| {' | '.join(cells)} |" for cells in [head, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def span(figures: Sequence[float], form: str | Callable[[float], str]) -> str:
    """Return the median with the lowest and the highest, each in this form; one figure has no spread."""
    if not figures:
        return "-"
    of_all = (statistics.median(figures), min(figures), max(figures))
    middle, low, high = (f"{one:{form}}" if isinstance(form, str) else form(one) for one in of_all)
    return middle if len(figures) == 1 else f"{middle} ({low} to {high})"


def number(value: float | None, form: str = ",.0f") -> str:
    return "-" if value is None else f"{value:{form}}"


def millions(rate: float) -> str:
    return f"{rate / 1e6:.3g}M"


def thousands(rate: float) -> str:
    return f"{round(rate, -3):,.0f}"


def seconds(value: float | None, limit_s: float | None = None) -> str:
    """Return a time to a return; one that was not reached is only known to be longer than the limit."""
    if value is not None:
        return f"{value:.1f}"
    return "-" if limit_s is None else f"> {limit_s:.0f}"


def machine_text(machine: dict[str, Any]) -> str:
    """Name a machine in the title of a picture."""
    return f"{machine['cores']} cores, {', '.join(machine['gpus']) or 'no GPU'}"


class Time(NamedTuple):
    """A time, or a bound where it is only known to be longer."""

    seconds: float
    is_bound: bool

    def __str__(self) -> str:
        return f"{'> ' if self.is_bound else ''}{self.seconds:.1f}"


def in_order(times: Iterable[float | None], limit_s: float) -> list[Time]:
    """Return times, of which None is one that is only known to be longer than the limit."""
    return sorted(Time(limit_s if at_s is None else at_s, at_s is None) for at_s in times)


def median_of(times: Iterable[float | None], limit_s: float) -> Time:
    ordered = in_order(times, limit_s)
    # Of an even number the median is the mean of the middle two: a bound as soon as the later one is.
    return Time(statistics.median(at_s for at_s, _ in ordered), ordered[len(ordered) // 2].is_bound)
