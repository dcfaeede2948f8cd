"""What the pictures of the benchmark scripts share: figures, axes, and the curves of several runs.

In: figures of a result. Out: parts of a picture. Without pyplot: no window system is needed, and no state is left.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spreeze.runs.learning_curves import Series, join_runs

LINES = ("-", "--", ":", "-.")


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure. In inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def colour_of(place: int) -> Any:
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
        axes.legend(fontsize=6, loc=legend)


def draw_curves(axes: Any, runs: Sequence[Series], label: str, place: int, line: str = "-") -> float | None:
    """Draw median and range over runs; return where the curve begins, if there is one."""
    curve, colour = join_runs(runs, "range"), colour_of(place)
    if curve is None:
        axes.plot([], [], line, color=colour, label=label)  # in the legend all the same
        return None
    axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(curve.x, curve.median, line, color=colour, linewidth=1.4, label=label)
    return float(curve.x[0])


def draw_medians(axes: Any, at: Sequence[float], groups: Sequence[Sequence[float]], **style: Any) -> None:
    """Draw the median of each group, with a bar from the lowest to the highest."""
    medians = [statistics.median(group) for group in groups]
    below = [median - min(group) for median, group in zip(medians, groups, strict=True)]
    above = [max(group) - median for median, group in zip(medians, groups, strict=True)]
    axes.errorbar(at, medians, yerr=(below, above), **style)


def save(figure: Any, path: Path, title: str) -> None:
    figure.suptitle(title, fontsize=9)
    figure.savefig(path, dpi=150)
