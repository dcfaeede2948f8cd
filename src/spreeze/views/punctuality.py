"""How a run with --realtime keeps its period, in words, for the terminal and the page.

In: the object `realtime` of a line of metrics.jsonl, which may be damaged. Out: labels and texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spreeze.runs.records import Measurement

WAITS = "the environment waits for a person"


def describe_punctuality(realtime: object) -> list[tuple[str, str]]:
    """Return what to show, each with its label."""
    if not isinstance(realtime, Mapping):
        return []
    steps, late = (realtime.get(name) for name in ("steps", "late_steps"))
    shown = [("Period", WAITS)] if waits_for_person(realtime) else []
    if _is_number(steps) and _is_number(late):
        shown.append(("Late steps", f"{late:,.0f} of {steps:,.0f}"))
    for name, label in (("last_second", "Jitter, last second"), ("run", "Jitter, whole run")):
        if text := _describe_lateness(realtime.get(name)):
            shown.append((label, text))
    return shown


def summarise_punctuality(measurement: Measurement) -> str:
    """Return it in one line; empty without --realtime."""
    if (realtime := measurement.realtime) is None:
        return ""
    text = f"{realtime.late_steps:,} of {realtime.steps:,} steps late"
    if realtime.run is not None:
        text += f", jitter p99 {1e3 * realtime.run.p99_s:.2f} ms, max {1e3 * realtime.run.max_s:.2f} ms"
    return f"{WAITS}; {text}" if realtime.waits_for_person else text


def waits_for_person(realtime: object) -> bool:
    """Return whether the environment waits for a person."""
    return isinstance(realtime, Mapping) and realtime.get("waits_for_person") is True


def _describe_lateness(lateness: object) -> str:
    if not isinstance(lateness, Mapping):
        return ""
    values: list[tuple[str, Any]] = [(name, lateness.get(f"{name}_s")) for name in ("p50", "p99", "max")]
    return "   ".join(f"{name} {1e3 * value:.2f} ms" for name, value in values if _is_number(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
