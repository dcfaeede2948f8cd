"""Draws an ablation from its JSON: a panel for each of its main figures, a line for each series."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from ablation.variants import ABLATIONS, Column

PANEL_INCHES = (3.6, 3.0)
TITLE_INCHES = 0.5


def picture(content: dict[str, Any], path: Path) -> None:
    """Draw medians with the lowest and the highest of all repeats."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings = content["settings"]
    ablation = ABLATIONS[settings["ablation"]]
    columns = [column for column in ablation.columns if column.key in ablation.panels and not column.is_relative]
    shown = [column for column in columns if any(run[column.key] is not None for run in content["runs"])]
    # A figure of its own, without pyplot: no window system is needed, and no state is left behind.
    size_inches = (PANEL_INCHES[0] * len(shown), PANEL_INCHES[1] + TITLE_INCHES)
    figure = Figure(figsize=size_inches, layout="constrained")
    series = list(dict.fromkeys(variant["series"] for variant in content["variants"]))
    for place, column in enumerate(shown, 1):
        axes = figure.add_subplot(1, len(shown), place)
        for number, name in enumerate(series):
            _draw(axes, column, name, content, mpl.colormaps["tab10"](number))
        places = list(dict.fromkeys(variant["x"] for variant in content["variants"]))
        axes.set_xticks(range(len(places)), places)
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


def _draw(axes: Any, column: Column, series: str, content: dict[str, Any], colour: Any) -> None:
    places = list(dict.fromkeys(variant["x"] for variant in content["variants"]))
    at, medians, below, above = [], [], [], []
    for variant in content["variants"]:
        runs = [run for run in content["runs"] if run["variant"] == variant["name"]]
        values = [run[column.key] for run in runs]
        if column.key == "time_to_target_s":  # not reached: longer than it ran
            values = [run["limit_s"] if value is None else value for run, value in zip(runs, values, strict=True)]
        known = [value for value in values if value is not None]
        if variant["series"] != series or not known:
            continue
        at.append(places.index(variant["x"]))
        medians.append(statistics.median(known))
        below.append(medians[-1] - min(known))
        above.append(max(known) - medians[-1])
    axes.errorbar(at, medians, (below, above), marker="o", capsize=3, color=colour, label=series or None)
