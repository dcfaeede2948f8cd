"""Parts of the page as HTML. All content of files is escaped here: a run folder may come from a stranger."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from spreeze.host.json_text import json_text
from spreeze.views.amounts import number
from spreeze.views.dashboard.formatting import NOTHING, byte_count, count, duration, event_text, score
from spreeze.views.machines import describe_machines
from spreeze.views.punctuality import describe_punctuality

MAX_EVENTS = 200  # the page shows a dozen at once, and scrolls
SPARK_WIDTH, SPARK_HEIGHT = 120.0, 28.0
MAX_ROLES = 4  # those that use most of the CPU
MAX_TEXT = 400  # characters of an event or a value: a traceback belongs in the log


def sparkline(values: Sequence[float]) -> str:
    """Draw the recent values of a figure, without axes."""
    if len(values) < 2:
        return '<svg class="spark" aria-hidden="true"></svg>'
    low, high = min(values), max(values)
    height = (high - low) or 1.0
    step = SPARK_WIDTH / (len(values) - 1)
    points = [
        (i * step, SPARK_HEIGHT - 3 - (value - low) / height * (SPARK_HEIGHT - 6)) for i, value in enumerate(values)
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<svg class="spark" viewBox="0 0 {SPARK_WIDTH:.0f} {SPARK_HEIGHT:.0f}" preserveAspectRatio="none" '
        f'aria-hidden="true"><polyline points="{path}"/></svg>'
    )


def events(lines: Sequence[Mapping[str, Any]]) -> str:
    """List events, the newest first."""
    if not lines:
        return '<p class="empty">No events yet.</p>'
    rows = []
    for event in reversed(lines[-MAX_EVENTS:]):
        kind = str(event.get("kind", "event"))
        mark = kind if kind in ("adapt", "warning", "error") else "other"
        rows.append(
            f'<li><span class="when">{escape(duration(number(event, "wall_s")))}</span>'
            f'<span class="kind kind-{mark}">{escape(kind[:12])}</span>'
            f'<span class="what">{_text(event_text(event))}</span></li>'
        )
    return f'<ol class="events">{"".join(rows)}</ol>'


def machine(newest: Mapping[str, Any] | None) -> str:
    """Show the usage of the machine: bars for cores, roles and GPU; memory."""
    rows: list[str] = []
    cores = (newest or {}).get("cpu_cores")
    if isinstance(cores, list) and cores:
        percents = [number({"core": core}, "core") or 0.0 for core in cores[:512]]
        bars = "".join(
            f'<i title="core {i}: {percent:.0f}%"><b style="height:{_within(percent):.0f}%"></b></i>'
            for i, percent in enumerate(percents)
        )
        busy = f"{sum(percents) / len(percents):.0f}%"
        rows.append(
            f'<div class="cores-row"><span>CPU, {len(percents)} cores</span><span class="value">{busy}</span>'
            f'<div class="cores" role="img" aria-label="CPU {busy} of {len(percents)} cores">{bars}</div></div>'
        )
    else:
        rows.append(_bar("CPU, all cores", number(newest, "cpu_percent")))
    roles = (newest or {}).get("cpu_by_role")
    if isinstance(roles, dict):
        most = max((number(roles, role) or 0.0 for role in roles), default=0.0)
        room = max(len(cores) if isinstance(cores, list) else 0, most, 1.0)
        for role in sorted(roles, key=lambda role: -(number(roles, role) or 0.0))[:MAX_ROLES]:
            used = number(roles, role)
            text = NOTHING if used is None else f"{used:.1f} cores"
            rows.append(_bar(role, None if used is None else 100 * used / room, text, "role"))
    gpu = number(newest, "gpu_percent")
    rows.append(_bar("GPU", gpu, None if gpu is not None else "none"))
    if (gpu_bytes := number(newest, "gpu_bytes")) is not None:
        rows.append(_pair("GPU memory", byte_count(gpu_bytes)))
    rows.append(_pair("Memory, all processes", byte_count(number(newest, "rss_bytes"))))
    rows += [_pair(label, text) for label, text in describe_punctuality((newest or {}).get("realtime"))]
    rows += [_pair(label, text) for label, text in describe_machines((newest or {}).get("cluster"))]
    return f'<div class="machine">{"".join(rows)}</div>'


def progress(summary: Mapping[str, Any], newest: Mapping[str, Any] | None, best: Mapping[str, Any] | None) -> str:
    """List what a run has reached, for pages without live pictures."""
    target_s = number(summary, "time_to_target_s")
    pairs = [
        ("Best return", f"{score(number(best, 'mean_return'))} ± {score(number(best, 'std_return'))}"),
        ("reached after", duration(number(best, "wall_s"))),
        ("Target return", f"reached after {duration(target_s)}" if target_s is not None else NOTHING),
        ("Env steps", count(number(newest, "env_steps"))),
        ("Updates", count(number(newest, "updates"))),
        ("Training episodes", count(number(newest, "episodes"))),
        ("Wall time", duration(number(summary, "wall_s") or number(newest, "wall_s"))),
    ]
    return f'<div class="progress">{"".join(_pair(name, value) for name, value in pairs)}</div>'


def settings(config: Mapping[str, Any], choices: Sequence[Mapping[str, Any]]) -> str:
    """List the resolved config, with the reasons of automatic choices."""
    if not config:
        return '<p class="empty">The config.json of this run cannot be read.</p>'
    # The path of the folder is private to its machine.
    shown = {name: value for name, value in config.items() if name != "run_dir"}
    chosen = {str(choice.get("setting")): choice for choice in choices}  # the last choice of a setting counts
    rows = []
    for name in (*shown, *(name for name in chosen if name not in config)):
        choice = chosen.get(name)
        value = choice.get("value") if choice is not None else shown[name]
        why = "" if choice is None else f'<span class="auto">auto</span>{_text(choice.get("reason"))}'
        written = _text(value if isinstance(value, str) else json_text(value, default=str))
        rows.append(f'<tr><th scope="row">{_text(name)}</th><td>{written}</td><td>{why}</td></tr>')
    titles = ("setting", "value", "chosen automatically, because")
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    return f'<table class="settings"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def _bar(name: str, percent: float | None, text: str | None = None, kind: str = "") -> str:
    shown = text if text is not None else NOTHING if percent is None else f"{percent:.0f}%"
    return (
        f'<div class="bar {kind}"><span>{_text(name)}</span><span class="value">{escape(shown)}</span>'
        f'<div class="track"><b style="width:{_within(percent or 0.0):.0f}%"></b></div></div>'
    )


def _pair(name: str, value: str) -> str:
    return f'<div class="pair"><span>{escape(name)}</span><span class="value">{escape(value)}</span></div>'


def _within(percent: float) -> float:
    return min(100.0, max(0.0, percent))


def _text(value: object) -> str:
    # The address of the dashboard is an event; its token must not be visible to those without it.
    text = re.sub(r"token=[\w%-]+", "token=…", str(value))
    return escape(text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…")
