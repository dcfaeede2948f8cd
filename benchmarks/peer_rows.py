"""The headline of a result of side_by_side.py, in words: Spreeze's figure, and those of its peers beside it.

In: the JSON's content. Out: cells of the README's table. All figures are those of side_by_side_report.py's tables.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from side_by_side_report import (
    Median,
    best_peer,
    by_system,
    figures_of,
    median_time,
    own_name,
    rate,
    sooner_sentence,
    time_text,
    time_to,
)
from side_by_side_runs import Run, is_spreeze, limit_of
from sitting import span

Groups = dict[str, list[Run]]


def learning(content: dict[str, Any]) -> str:
    """Say our time to the target or, where there is none, to the return that the best peer has at the end."""
    groups, settings = by_system(content), content["settings"]
    ours, limit_s = own_runs(groups), limit_of(own_name(groups) or "", settings)
    if settings["target_return"] is not None:
        return f"**{median_time(ours, limit_s)} s** ({low_to_high(ours, limit_s)})"
    goal = best_peer(groups)
    return "-" if goal is None else f"**{time_to(ours, goal.final, limit_s)} s** to {goal.final:,.0f}"


def learning_beside(content: dict[str, Any]) -> str:
    """Say the times of the peers, the fastest first; or when the best peer has the return that we have then."""
    groups, settings = by_system(content), content["settings"]
    if settings["target_return"] is None:
        goal = best_peer(groups)
        if goal is None:
            return ""
        ours = time_to(own_runs(groups), goal.final, limit_of(own_name(groups) or "", settings))
        return sooner_sentence(goal, ours, limit_of(goal.system, settings))
    limits = {name: limit_of(name, settings) for name in peers(groups)}
    medians = {name: median_time(runs, limits[name]) for name, runs in peers(groups).items()}
    order = sorted(medians, key=lambda name: (medians[name].seconds, medians[name].is_bound))
    said = [
        f"{groups[name][0].title} {seconds(medians[name])} ({low_to_high(groups[name], limits[name])})"
        for name in order
    ]
    return f"{', '.join(said)}; theirs are without their evaluations"


def own_runs(groups: Groups) -> list[Run]:
    name = own_name(groups)
    return figures_of(groups[name]) if name is not None else []


def peers(groups: Groups) -> Groups:
    """Return the peers that have figures."""
    measured = {name: figures_of(runs) for name, runs in groups.items() if not is_spreeze(name)}
    return {name: runs for name, runs in measured.items() if runs}


def seconds(median: Median) -> str:
    return f"{median} s"


def low_to_high(runs: Sequence[Run], limit_s: float) -> str:
    """Say the shortest and the longest time; one that was not reached is the longest."""
    times = sorted((run.time_to_target_s for run in figures_of(runs)), key=lambda at_s: at_s or limit_s)
    return f"{time_text(times[0], limit_s)} to {time_text(times[-1], limit_s)}"


def throughput(content: dict[str, Any], name: str) -> str:
    ours = [getattr(run, name) for run in own_runs(by_system(content))]
    return f"**{statistics.median(ours):,.0f}** ({min(ours):,.0f} to {max(ours):,.0f})"


def throughput_beside(content: dict[str, Any], name: str) -> str:
    """Say the rates of the peers, the fastest first, and how many times the fastest ours is."""
    groups = by_system(content)
    order = sorted(peers(groups).values(), key=lambda runs: -rate(runs, name))
    said = [f"{runs[0].title} {span([getattr(run, name) for run in runs], ',.0f')}" for runs in order]
    ratio = rate(own_runs(groups), name) / rate(order[0], name)
    return f"{', '.join(said)}; {ratio:.2f} times the fastest of them"
