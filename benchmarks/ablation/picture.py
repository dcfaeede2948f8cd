"""Draws an ablation from its JSON: a panel for each of its main figures, a line for each series."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from ablation.variants import ABLATIONS, Column
from charts import colour_of, draw_medians, dress, new_figure, save
from formats import machine_text

PANEL_INCHES = (3.6, 3.5)
TICK_LETTERS = 14
OFFSET = 0.08


def picture(content: dict[str, Any], path: Path) -> None:
    settings = content["settings"]
    ablation = ABLATIONS[settings["ablation"]]
    columns = [column for column in ablation.columns if column.key in ablation.panels and not column.is_relative]
    shown = [column for column in columns if any(value_of(run, column) is not None for run in content["runs"])]
    figure = new_figure(PANEL_INCHES[0] * len(shown), PANEL_INCHES[1])
    series = list(dict.fromkeys(variant["series"] for variant in content["variants"]))
    places = list(dict.fromkeys(variant["x"] for variant in content["variants"]))
    for place, column in enumerate(shown, 1):
        axes = figure.add_subplot(1, len(shown), place)
        for number in range(len(series)):
            draw_series(axes, column, series, number, places, content)
        axes.set_xticks(range(len(places)), [textwrap.fill(place, TICK_LETTERS) for place in places])
        axes.set_xlim(-0.5, len(places) - 0.5)
        header = column.header.format(target=f"{settings['target_return']:g}")
        legend = "best" if len(series) > 1 else None
        dress(axes, ablation.rows.rpartition(", ")[2], header, legend=legend)
        axes.set_ylim(bottom=0)
    save(figure, path, f"{settings['env']}, {machine_text(content['machine'])}: {ablation.about}")


def value_of(run: dict[str, Any], column: Column) -> float | None:
    """Return a figure of a run; of a target that was not reached, how long the run lasted."""
    value: float | None = run[column.key]
    return run["limit_s"] if value is None and column.key == "time_to_target_s" else value


def draw_series(
    axes: Any, column: Column, series: list[str], number: int, places: list[str], content: dict[str, Any]
) -> None:
    at, groups, colour = [], [], colour_of(number)
    for variant in content["variants"]:
        runs = [run for run in content["runs"] if run["variant"] == variant["name"]]
        known = [value for run in runs if (value := value_of(run, column)) is not None]
        if variant["series"] != series[number] or not known:
            continue
        # Next to each other, where they share a place.
        at.append(places.index(variant["x"]) + OFFSET * (number - (len(series) - 1) / 2))
        groups.append(known)
        if any(run[column.key] is None for run in runs):
            axes.annotate(">", (at[-1], max(known)), fontsize=9, ha="center", va="bottom", color=colour)
    # A line only where there is something in between: numbers, but not names.
    line = "-" if all(place.replace(".", "").isdigit() for place in places) else "none"
    style = {"marker": "o", "capsize": 3, "color": colour, "linestyle": line}
    draw_medians(axes, at, groups, **style, label=series[number] or None)
