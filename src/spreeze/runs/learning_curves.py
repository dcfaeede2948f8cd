"""Joins the evaluations of several runs into one curve: a median and its spread on a common grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from spreeze.runs.journal_reader import MAX_DRAWN

GRID_POINTS = 400  # about the pixels of a panel at 150 dots per inch

Series = Sequence[tuple[float, float]]
"""The evaluations of a run: position on the horizontal axis (wall_s or env_steps) and mean return."""

_PERCENTILES: dict[str, tuple[float, float]] = {"range": (0.0, 100.0), "quartiles": (25.0, 75.0)}


@dataclass(frozen=True)
class Curve:
    """Runs of one kind on a common grid."""

    x: NDArray[np.float64]
    median: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def _drawable(series: Series) -> Series:
    """Leave out points that no axis has room for."""
    return [point for point in series if all(abs(number) <= MAX_DRAWN for number in point)]


def until(series: Series, reached: float | None) -> Series:
    """Return the evaluations up to the one that reached the target; all of them where none did.

    The evaluator may have finished one more before the run ended.
    """
    return series if reached is None else [point for point in series if point[0] <= reached]


def join_runs(
    runs: Sequence[Series], spread: Literal["range", "quartiles"], stays: Sequence[bool] | None = None
) -> Curve | None:
    """Return median and spread of the return over runs; None if no run was evaluated, or no x is common to all.

    Between two evaluations a run's return is interpolated linearly. After the last one it is constant where `stays`
    is True (the default), as for a run that ended at its target. The curve begins where all runs have been evaluated
    and ends with the first run whose return does not stay: every point is of all runs. Points that cannot be drawn
    are left out.
    """
    runs = [_drawable(run) for run in runs]
    kept = [True] * len(runs) if stays is None else stays
    # Sorted by x: a damaged file may have another order. (evaluations, 2) each.
    evaluated = [(np.array(sorted(run), np.float64), stay) for run, stay in zip(runs, kept, strict=True) if run]
    if not evaluated:
        return None
    begin = max(run[0, 0] for run, _ in evaluated)
    ends = [run[-1, 0] for run, stay in evaluated if not stay]
    end = min(ends) if ends else max(run[-1, 0] for run, _ in evaluated)
    if end < begin:
        return None
    x = np.linspace(begin, end, GRID_POINTS)
    returns = np.stack([np.interp(x, run[:, 0], run[:, 1]) for run, _ in evaluated])  # (runs, GRID_POINTS)
    low, high = np.percentile(returns, _PERCENTILES[spread], axis=0)
    return Curve(x, np.median(returns, axis=0), low, high)
