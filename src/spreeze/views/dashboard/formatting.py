"""Formats numbers with units, the state of a run and its events as text. Pure: no file, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spreeze.runs.journal_reader import State
from spreeze.views.amounts import number
from spreeze.views.under_way import describe_under_way

NOTHING = "–"  # in place of a missing number
MINUS = "−"

STOP_REASONS: Mapping[str, str] = {
    "target_return": "the target return was reached",
    "max_seconds": "the time limit was reached",
    "max_env_steps": "the limit of env steps was reached",
    "max_updates": "the limit of updates was reached",
    "measured": "all settings were measured",
    "interrupted": "interrupted",
    "terminated": "terminated",
    "stopped": "stopped from the dashboard",
}


def count(value: float | None) -> str:
    """Format a number that may be large: 312, 9,876, 43.2 k, 1.25 M."""
    if value is None:
        return NOTHING
    size = abs(value)
    for unit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        # As it will be rounded: 999,960 is 1.00 M, not 1000.0 k.
        if size >= (10_000 if suffix == "k" else 0.99995 * unit):
            scaled = value / unit
            return _sign(f"{scaled:.{2 if abs(scaled) < 10 else 1 if abs(scaled) < 100 else 0}f} {suffix}")
    return _sign(f"{value:,.0f}" if size >= 100 or value == int(value) else f"{value:.3g}")


def decimal(value: float | None, digits: int = 1) -> str:
    """Format with a fixed number of digits, so that the width of a changing number stays the same."""
    return NOTHING if value is None else _sign(f"{value:,.{digits}f}")


def score(value: float | None) -> str:
    """Format a return: one digit after the point, unless it is large."""
    return decimal(value, 0 if value is not None and abs(value) >= 1000 else 1)


def share(value: float | None) -> str:
    """Format a share of 1 as percent."""
    return NOTHING if value is None else f"{100 * value:.0f}%"


def seconds(value: float | None) -> str:
    """Format a short time: 64 ms, 1.2 s."""
    if value is None:
        return NOTHING
    return f"{1000 * value:.0f} ms" if abs(value) < 0.9995 else f"{value:.1f} s"


def duration(value: float | None) -> str:
    """Format a duration: 25 s, 3:05 min, 1:02:03 h."""
    if value is None:
        return NOTHING
    whole = max(0, round(value))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02} h"


def byte_count(value: float | None) -> str:
    """Format an amount of memory."""
    if value is None:
        return NOTHING
    return f"{value / 1e9:.1f} GB" if value >= 1e9 else f"{value / 1e6:.0f} MB"


def state_text(state: State, summary: Mapping[str, Any], failure: str | None) -> str:
    """Describe the state or the result of a run, in one line."""
    if state == "starting":
        return "the processes are starting"
    if state == "running":
        return "samplers, learner and evaluator are running"
    if state == "gone":
        return "the folder of this run is gone; the page shows what was read before"
    if state == "silent":
        return "no end was recorded, but nothing was written for a while: the run was killed, or it hangs"
    if state == "failed":
        return failure or "no reason was recorded"
    reason = str(summary.get("stop_reason"))
    reached = [STOP_REASONS.get(reason, reason)]
    if (best := number(summary, "best_return")) is not None:
        reached.append(f"best return {score(best)}")
    if (steps := number(summary, "env_steps")) is not None:
        reached.append(f"{count(steps)} env steps")
    if (wall_s := number(summary, "wall_s")) is not None:
        reached.append(f"in {duration(wall_s)}")
    return " · ".join(reached)


STATE_TITLES: Mapping[State, str] = {
    "starting": "starting",
    "running": "running",
    "finished": "finished",
    "failed": "failed",
    "silent": "silent",
    "gone": "folder gone",
}


def under_way_text(evaluating: object) -> str:
    """Describe an evaluation that is not complete, the object `evaluating` of a line; empty if there is none."""
    if not isinstance(evaluating, Mapping):
        return ""
    version, played, episodes = (number(evaluating, name) for name in ("version", "played", "episodes"))
    if version is None or played is None or episodes is None:
        return ""
    mean = number(evaluating, "mean_return")
    return describe_under_way(version, played, episodes, "" if mean is None else score(mean))


def event_text(event: Mapping[str, Any]) -> str:
    """Describe an event, in one line."""
    reason = str(event.get("reason") or "no reason given")
    if event.get("kind") == "choice" and "setting" in event:
        return f"{event['setting']} = {event.get('value')}: {reason}"
    return reason.replace(" -> ", " → ")


def _sign(text: str) -> str:
    # A minus sign is as wide as a plus, unlike a hyphen. A zero has no sign.
    if not text.startswith("-"):
        return text
    return MINUS + text[1:] if any(digit in text for digit in "123456789") else text[1:]
