"""The README's table: five headline results, and what they are compared with.

In: results of side_by_side.py. Out: a table. The words are written here and nowhere else; each figure is computed.
All systems, with each seed, are in the tables of docs/benchmarks.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from comparison import System, sooner_sentence, systems_of
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
    ours, others = compared(content)
    others = sorted(others, key=lambda peer: (*peer.time(), peer.name))
    if all(peer.time().is_bound for peer in others):
        shown = f"none of {len(others)} libraries within {others[0].limit_s:.0f} s, RLlib among them"
    else:
        named = dict.fromkeys([others[0], *(peer for peer in others if peer.name == "rllib")])
        shown = ", ".join(f"{peer.title} {peer.time()} s" for peer in named)
    return f"**{ours.time()} s**", shown


def time_to_best_peer(content: Content) -> Cells:
    """Our time to the return that the best peer has at its end."""
    ours, others = compared(content)
    goal = max(others, key=lambda peer: peer.final)
    return f"**{ours.time(goal.final)} s**", sooner_sentence(ours, goal)


def update_rate(content: Content) -> Cells:
    ours, others = compared(content)
    return f"**{ours.median('update_hz'):,.0f}**", times_fastest(ours, others, "update_hz", "{:,.0f}".format)


def frame_rate(content: Content) -> Cells:
    ours, others = compared(content)
    frames, steps = ours.median("update_frame_hz"), ours.median("sampling_hz")
    words = f"**{millions(frames)}**, with {thousands(steps)} env steps/s meanwhile"
    return words, times_fastest(ours, others, "update_frame_hz", millions)


def compared(content: Content) -> tuple[System, list[System]]:
    """Return our system and the peers, of those that have figures."""
    systems = [system for system in systems_of(content) if system.measured]
    return next(system for system in systems if system.is_ours), [peer for peer in systems if not peer.is_ours]


def times_fastest(ours: System, others: list[System], name: str, form: Callable[[float], str]) -> str:
    fastest = max(others, key=lambda peer: peer.median(name))
    times = ours.median(name) / fastest.median(name)
    of = f"fastest of {len(others)} libraries" if len(others) > 2 else "faster of two libraries"
    return f"{times:.2f} times {fastest.title}, the {of}: {form(fastest.median(name))}"


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
