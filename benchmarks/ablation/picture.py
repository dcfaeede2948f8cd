"""Draws an ablation from its JSON: a panel for each of its main figures, a line for each series."""

from __future__ import annotations

import statistics
import textwrap
from pathlib import Path
from typing import Any

from ablation.variants import ABLATIONS, Column

PANEL_INCHES = (3.6, 3.0)
TITLE_INCHES = 0.5
TICK_LETTERS = 14
OFFSET = 0.08


def picture(content: dict[str, Any], path: Path) -> None:
    """Draw medians with the lowest and the highest of all repeats."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings = content["settings"]
    ablation = ABLATIONS[settings["ablation"]]
    columns = [column for column in ablation.columns if column.key in ablation.panels and not column.is_relative]
    shown = [column for column in columns if any(value_of(run, column) is not None for run in content["runs"])]
    # A figure of its own, without pyplot: no window system is needed, and no state is left behind.
    size_inches = (PANEL_INCHES[0] * len(shown), PANEL_INCHES[1] + TITLE_INCHES)
    figure = Figure(figsize=size_inches, layout="constrained")
    series = _series(content)
    for place, column in enumerate(shown, 1):
        axes = figure.add_subplot(1, len(shown), place)
        for number in range(len(series)):
            _draw(axes, column, number, content, mpl.colormaps["tab10"](number))
        places = list(dict.fromkeys(variant["x"] for variant in content["variants"]))
        axes.set_xticks(range(len(places)), [textwrap.fill(place, TICK_LETTERS) for place in places])
        axes.set_xlim(-0.5, len(places) - 0.5)
        axes.set_xlabel(ablation.rows.rpartition(", ")[2], fontsize=8)
        axes.set_ylabel(column.header.format(target=f"{settings['target_return']:g}"), fontsize=8)
        axes.set_ylim(bottom=0)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.25)
        if len(series) > 1:
            axes.legend(fontsize=7)
    machine = content["machine"]
    where = f"{machine['cores']} cores, {', '.join(machine['gpus']) or 'no GPU'}"
    figure.suptitle(f"{settings['env']}, {where}: {ablation.about}", fontsize=9)
    figure.savefig(path, dpi=150)


def value_of(run: dict[str, Any], column: Column) -> float | None:
    """Return a figure of a run; of a target that was not reached, how long the run lasted."""
    value: float | None = run[column.key]
    return run["limit_s"] if value is None and column.key == "time_to_target_s" else value


def _draw(axes: Any, column: Column, number: int, content: dict[str, Any], colour: Any) -> None:
    series = _series(content)
    places = list(dict.fromkeys(variant["x"] for variant in content["variants"]))
    at, medians, below, above = [], [], [], []
    for variant in content["variants"]:
        runs = [run for run in content["runs"] if run["variant"] == variant["name"]]
        known = [value for run in runs if (value := value_of(run, column)) is not None]
        if variant["series"] != series[number] or not known:
            continue
        # Beside each other, where they share a place.
        at.append(places.index(variant["x"]) + OFFSET * (number - (len(series) - 1) / 2))
        medians.append(statistics.median(known))
        below.append(medians[-1] - min(known))
        above.append(max(known) - medians[-1])
        if any(run[column.key] is None for run in runs):
            axes.annotate(">", (at[-1], max(known)), fontsize=9, ha="center", va="bottom", color=colour)
    # A line only where there is something in between: numbers, but not names.
    line = "-" if all(place.replace(".", "").isdigit() for place in places) else "none"
    style = {"marker": "o", "capsize": 3, "color": colour, "linestyle": line}
    axes.errorbar(at, medians, (below, above), **style, label=series[number] or None)


def _series(content: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(variant["series"] for variant in content["variants"]))
