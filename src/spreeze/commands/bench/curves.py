"""Draws the results of `spreeze bench solve`: return against wall time, one panel per environment.

Run as a program, it draws a JSON file: python -m spreeze.commands.bench.curves FILE.json PICTURE.png
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spreeze.commands.bench import seconds_text
from spreeze.runs.learning_curves import Series, join_runs, until

PANELS_PER_ROW = 3
PANEL_INCHES = (4.4, 3.3)
TITLE_INCHES = 0.6


def panels(tasks: Sequence[dict[str, Any]]) -> dict[tuple[str, float], list[dict[str, Any]]]:
    """Return the tasks of each panel: all recipes for one environment and threshold, in their order."""
    found: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for task in tasks:
        found.setdefault((task["env"], task["threshold"]), []).append(task)
    return found


def draw_curves(figures: dict[str, Any], path: Path) -> None:
    """Draw the figures of the benchmark. figures: its JSON."""
    from matplotlib.figure import Figure

    shown = panels(figures["tasks"])
    columns = min(PANELS_PER_ROW, len(shown))
    rows = -(-len(shown) // columns)
    # Without pyplot: no window system is needed, and no global state changes.
    size_inches = (PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows + TITLE_INCHES)
    figure = Figure(figsize=size_inches, layout="constrained")
    # The same recipe has the same colour in all panels.
    names = list(dict.fromkeys(task["name"] for task in figures["tasks"]))
    for place, ((env, threshold), recipes) in enumerate(shown.items(), 1):
        axes = figure.add_subplot(rows, columns, place)
        axes.axhline(threshold, linestyle="--", linewidth=1, color="grey")
        for recipe in recipes:
            runs = [run for run in figures["runs"] if run["label"] == recipe["label"]]
            _draw_recipe(axes, recipe, runs, names.index(recipe["name"]))
        axes.set_xlim(left=0)
        title = f"{env}, threshold {threshold:,g}"
        dress(axes, "wall time from the start of the command, s", "mean return of an evaluation", title)
    figure.suptitle(_title(figures), fontsize=9)
    figure.savefig(path, dpi=150)


def colour_of(place: int) -> Any:
    """Return the colour of a curve, by its place among all."""
    import matplotlib as mpl

    return mpl.colormaps["tab10"](place % 10)


def dress(axes: Any, x: str, y: str, title: str = "", *, legend: str | None = "lower right") -> None:
    """Write on the axes; legend: where it is put, if there is one."""
    axes.set_title(title, fontsize=9)
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)
    axes.tick_params(which="both", labelsize=7)
    axes.grid(alpha=0.25)
    if legend is not None:
        axes.legend(fontsize=7, loc=legend)


def draw_band(axes: Any, runs: Sequence[Series], label: str, place: int) -> float | None:
    """Draw the median over runs, and the band from lowest to highest; return where the curve begins, if it does."""
    curve, colour = join_runs(runs, "range"), colour_of(place)
    if curve is None:
        axes.plot([], [], color=colour, label=label)  # still in the legend
        return None
    axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0)
    axes.plot(curve.x, curve.median, color=colour, linewidth=1.5, label=label)
    return float(curve.x[0])


def _draw_recipe(axes: Any, recipe: dict[str, Any], runs: list[dict[str, Any]], place: int) -> None:
    """Draw the curve of a recipe, and a dot where a seed reached the threshold."""
    # A run that was solved, or reached its limit, keeps its last return; a failed run is left out.
    draw_band(axes, [_series(run) for run in runs if run["error"] is None], _label(recipe), place)
    reached_s = [run["wall_s"] for run in runs if run["solved"]]
    axes.plot(reached_s, [recipe["threshold"]] * len(reached_s), "o", color=colour_of(place), markersize=4)


def _series(run: dict[str, Any]) -> Series:
    evaluated = [(evaluation["wall_s"], evaluation["mean_return"]) for evaluation in run["evaluations"]]
    return until(evaluated, run["wall_s"] if run["solved"] else None)


def _label(recipe: dict[str, Any]) -> str:
    median_s = recipe["median_s"]
    median = "-" if median_s is None else seconds_text(median_s, recipe["median_is_bound"])
    name = "" if recipe["name"] is None else f"{recipe['name']}: "
    return f"{name}median {median}, solved {recipe['solved']} of {recipe['runs']}"


def _title(figures: dict[str, Any]) -> str:
    machine = figures["machine"]
    gpus = ", ".join(machine["gpus"]) or "no GPU"
    return (
        f"{machine['cores']} cores, {gpus}\n"
        f"median and range of {figures['seeds']} seed{'s' if figures['seeds'] > 1 else ''}; dots: threshold reached"
    )


if __name__ == "__main__":
    draw_curves(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
