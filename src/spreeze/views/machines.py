"""Other machines of a run with --cluster, in words, for the terminal and the page.

In: the object `cluster` of a line of metrics.jsonl, which may be damaged. Out: labels and texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spreeze.errors import printable
from spreeze.runs.records import MAX_NAME, MachineFigures, Measurement
from spreeze.views.amounts import byte_text, number, rate

MOST_SHOWN = 16  # on the page: more would push everything else out of sight
STATES = {"joining": "joining", "at_work": "at work", "away": "away", "refused": "not used"}


def describe_machines(cluster: object) -> list[tuple[str, str]]:
    """Return what to show of each machine, under its name, and what has become of their rows."""
    shown = [(name, ", ".join(_parts_of(machine))) for name, machine in _machines_in(cluster)[:MOST_SHOWN]]
    if isinstance(cluster, Mapping):
        sampled, lost = (number(cluster, f"rows_{what}") for what in ("sampled", "lost"))
        if sampled is not None and lost is not None:
            shown.append(("Rows of other machines", f"{sampled:,.0f} sampled, {lost:,.0f} lost"))
    return shown


def summarise_machines(measurement: Measurement) -> list[str]:
    """Return each machine in a few words; empty without --cluster."""
    return [] if measurement.cluster is None else [_in_short(machine) for machine in measurement.cluster.machines]


def link_that_waits(cluster: object) -> str | None:
    """Return the name of a machine whose rows wait for the link to it; None if there is none."""
    return next((name for name, machine in _machines_in(cluster) if machine.get("waits_for") == "link"), None)


def count_machines(cluster: object) -> int:
    """Return how many other machines sample."""
    return sum(machine.get("state") == "at_work" for _, machine in _machines_in(cluster))


def _in_short(machine: MachineFigures) -> str:
    if machine.state != "at_work":
        return f"{machine.name} {STATES.get(machine.state, machine.state)}"
    waits = f", waits for the {machine.waits_for}" if machine.waits_for else ""
    return f"{machine.name} {rate(machine.rows_hz)}/s{waits}"


def _parts_of(machine: Mapping[str, Any]) -> list[str]:
    state, waits_for = machine.get("state"), machine.get("waits_for")
    parts = [STATES.get(state, "state unknown") if isinstance(state, str) else "state unknown"]
    if state != "at_work":
        return parts
    if (samplers := number(machine, "samplers")) is not None:
        parts.append(f"{samplers:.0f} samplers")
    if (rows_hz := number(machine, "rows_hz")) is not None:
        parts.append(f"{rate(rows_hz)} rows/s")
    if (bytes_hz := number(machine, "bytes_hz")) is not None:
        parts.append(f"{byte_text(int(bytes_hz))}/s")
    if (lag_s := number(machine, "policy_lag_s")) is not None:
        parts.append(f"policy lag {lag_s:.2f} s")
    if waits_for in ("link", "learner"):
        parts.append(f"waits for the {waits_for}")
    return parts


def _machines_in(cluster: object) -> list[tuple[str, Mapping[str, Any]]]:
    machines = cluster.get("machines") if isinstance(cluster, Mapping) else None
    if not isinstance(machines, list | tuple):
        return []
    return [(printable(str(each.get("name"))[:MAX_NAME]), each) for each in machines if isinstance(each, Mapping)]
