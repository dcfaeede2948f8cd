"""The README's table: five headline results, and what they are compared with.

In: results of side_by_side.py. Out: a table. The words are written here and nowhere else; each figure is computed.
All systems, with each seed, are in the tables of docs/benchmarks.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import side_by_side as peers
from formats import markdown, millions, thousands
from sources import places_line, read

Content = dict[str, Any]
Cells = tuple[str, str]


def readme() -> str:
    """Return the table, with the machines and the dates above it."""
    rows = []
    for what, file, cells in ROWS:
        ours, compared = cells(read(f"benchmarks/results/{file}"))
        rows.append([what, ours, compared])
    places = places_line(f"benchmarks/results/{file}" for _, file, _ in ROWS)
    clock = "Times count from the start of the command; those of other libraries are without their evaluations."
    return f"{places}. {clock}\n\n{markdown(('what', 'Spreeze', 'compared with'), rows)}"


def time_to_target(content: Content) -> Cells:
    """Our median time, and those of the fastest peer and of RLlib; one bound for all where no peer got there."""
    groups, settings = peers.by_system(content), content["settings"]
    medians = {
        name: peers.median_time(measured, peers.limit_of(name, settings))
        for name, runs in groups.items()
        if (measured := peers.measured_of(runs))
    }
    others = sorted(
        (median.seconds, median.is_bound, name) for name, median in medians.items() if not peers.is_spreeze(name)
    )
    ours = f"**{medians[peers.own_name(groups) or '']} s**"
    if all(is_bound for _, is_bound, _ in others):
        return ours, f"none of {len(others)} libraries within {others[0][0]:.0f} s, RLlib among them"
    shown = dict.fromkeys([others[0][2], *(name for *_, name in others if name == "rllib")])
    return ours, ", ".join(f"{groups[name][0].title} {medians[name]} s" for name in shown)


def time_to_best_peer(content: Content) -> Cells:
    """Our time to the return that the best peer has at its end."""
    groups, settings = peers.by_system(content), content["settings"]
    own, goal = peers.own_name(groups), peers.best_peer(groups)
    assert own is not None
    assert goal is not None
    median = peers.median_time(peers.measured_of(groups[own]), peers.limit_of(own, settings), goal.final)
    return f"**{median} s**", peers.sooner_sentence(goal, median, peers.limit_of(goal.system, settings))


def update_rate(content: Content) -> Cells:
    groups = peers.by_system(content)
    return f"**{own_rate(groups, 'update_hz'):,.0f}**", times_fastest(groups, "update_hz", "{:,.0f}".format)


def frame_rate(content: Content) -> Cells:
    groups = peers.by_system(content)
    frames, steps = (own_rate(groups, name) for name in ("update_frame_hz", "sampling_hz"))
    ours = f"**{millions(frames)}**, with {thousands(steps)} env steps/s meanwhile"
    return ours, times_fastest(groups, "update_frame_hz", millions)


def own_rate(groups: dict[str, Any], name: str) -> float:
    return peers.rate(groups[peers.own_name(groups) or ""], name)


def times_fastest(groups: dict[str, Any], name: str, form: Callable[[float], str]) -> str:
    others = [runs for system, runs in groups.items() if not peers.is_spreeze(system) and peers.measured_of(runs)]
    fastest = max(others, key=lambda runs: peers.rate(runs, name))
    times = own_rate(groups, name) / peers.rate(fastest, name)
    of = f"fastest of {len(others)} libraries" if len(others) > 2 else "faster of two libraries"
    return f"{times:.2f} times {fastest[0].title}, the {of}: {form(peers.rate(fastest, name))}"


ROWS: list[tuple[str, str, Callable[[Content], Cells]]] = [
    ("2 cores: time to -200 on Pendulum-v1, median over seeds", "peers-pendulum-2-cores.json", time_to_target),
    ("2 cores: time to 1,000 on Hopper-v5, median over seeds", "peers-hopper-2-cores.json", time_to_target),
    (
        "2 cores: updates/s at batch 256 while sampling HalfCheetah-v5",
        "peers-throughput-256-2-cores.json",
        update_rate,
    ),
    (
        "one H200: update frames/s at batch 8,192 while sampling HalfCheetah-v5",
        "h200/peers-throughput-8192.json",
        frame_rate,
    ),
    (
        "one H200: time to the best library's return on HalfCheetah-v5, one seed",
        "h200/peers-halfcheetah.json",
        time_to_best_peer,
    ),
]
