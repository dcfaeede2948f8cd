"""Points for charts: thinned out, on readable scales, and joined over several seeds. Pure: no file, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Point = tuple[float, float]
Axis = Literal["wall_s", "env_steps"]

MAX_POINTS = 400  # about one per two pixels of the largest chart: more cannot be seen, and cost time on every refresh
GRID_POINTS = 200  # of a median over seeds


def decimate(points: Sequence[Point], max_points: int = MAX_POINTS) -> list[int]:
    """Choose which points to draw so that the line looks the same: the first, the last, and of each bucket the one
    that spans the largest triangle with its neighbours (Steinarsson 2013, largest triangle three buckets)."""
    if len(points) <= max(3, max_points):
        return list(range(len(points)))
    xs, ys = (np.asarray(values, np.float64) for values in zip(*points, strict=True))
    edges = np.linspace(1, len(points) - 1, max_points - 1).astype(int)  # of the buckets between first and last
    chosen = [0]
    for bucket in range(max_points - 2):
        start, end = edges[bucket], edges[bucket + 1]
        next_end = edges[bucket + 2] if bucket + 2 < len(edges) else len(points)
        next_x, next_y = xs[end:next_end].mean(), ys[end:next_end].mean()
        last_x, last_y = xs[chosen[-1]], ys[chosen[-1]]
        areas = np.abs((last_x - next_x) * (ys[start:end] - last_y) - (last_x - xs[start:end]) * (next_y - last_y))
        chosen.append(int(start + np.argmax(areas)))
    return [*chosen, len(points) - 1]


def thin(points: Sequence[Point], max_points: int = MAX_POINTS) -> list[Point]:
    """Return the points to draw."""
    return [points[i] for i in decimate(points, max_points)]


@dataclass(frozen=True)
class Scale:
    """The unit of an axis."""

    title: str
    divisor: float

    def of(self, value: float) -> float:
        """Return a value in this unit, with no more digits than can be seen."""
        return float(f"{value / self.divisor:.5g}")


def scale_of(axis: Axis, largest: float) -> Scale:
    """Choose the unit in which the numbers of an axis are readable."""
    if axis == "wall_s":
        if largest <= 180:
            return Scale("wall time (s)", 1.0)
        return Scale("wall time (min)", 60.0) if largest <= 3 * 3600 else Scale("wall time (h)", 3600.0)
    if largest < 10_000:
        return Scale("env steps", 1.0)
    return Scale("env steps (thousands)", 1e3) if largest < 2e6 else Scale("env steps (millions)", 1e6)


@dataclass(frozen=True)
class Spread:
    """A median over runs, with their middle half as a band."""

    median: list[Point]
    low: list[Point]
    high: list[Point]


def spread(curves: Sequence[Sequence[Point]], grid_points: int = GRID_POINTS) -> Spread | None:
    """Return the median of several curves, over the x that at least half of them cover; None without any points.

    At least half: of runs that are still running, only some are as long as the longest.
    """
    drawn = [sorted(curve) for curve in curves if curve]
    if not drawn:
        return None
    start, end = min(curve[0][0] for curve in drawn), max(curve[-1][0] for curve in drawn)
    grid = np.linspace(start, end, grid_points if end > start else 1)
    outside = {"left": np.nan, "right": np.nan}
    values = np.array([np.interp(grid, [x for x, _ in curve], [y for _, y in curve], **outside) for curve in drawn])
    is_covered = 2 * np.isfinite(values).sum(axis=0) >= len(drawn)  # (grid,)
    grid, values = grid[is_covered], values[:, is_covered]  # (runs, grid)
    if not len(grid):
        return None
    low, median, high = np.nanquantile(values, (0.25, 0.5, 0.75), axis=0)

    def points(of: Any) -> list[Point]:
        return [(float(x), float(y)) for x, y in zip(grid, of, strict=True)]

    return Spread(points(median), points(low), points(high))
