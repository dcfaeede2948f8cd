"""What the pictures of the benchmark scripts share, besides the curves and axes of `spreeze bench solve`.

In: figures of a result. Out: parts of a picture. Without pyplot: no window system is needed, and no state is left.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure. In inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def draw_medians(axes: Any, at: Sequence[float], groups: Sequence[Sequence[float]], **style: Any) -> None:
    """Draw the median of each group, with a bar from the lowest to the highest."""
    medians = [statistics.median(group) for group in groups]
    below = [median - min(group) for median, group in zip(medians, groups, strict=True)]
    above = [max(group) - median for median, group in zip(medians, groups, strict=True)]
    axes.errorbar(at, medians, yerr=(below, above), **style)


def save(figure: Any, path: Path, title: str) -> None:
    figure.suptitle(title, fontsize=9)
    figure.savefig(path, dpi=150)
