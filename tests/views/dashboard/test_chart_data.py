from __future__ import annotations

import math

import pytest

from spreeze.runs.journal_reader import JournalLines
from spreeze.views.dashboard import charts
from spreeze.views.dashboard.chart_data import decimate, scale_of, spread, thin


def test_few_points_stay_as_they_are() -> None:
    points = [(float(i), float(i)) for i in range(10)]
    assert thin(points, 10) == points
    assert thin([], 10) == []


@pytest.mark.parametrize("count", [11, 100, 401, 5000])
def test_many_points_become_as_many_as_asked_for(count: int) -> None:
    points = [(float(i), math.sin(i)) for i in range(count)]
    chosen = decimate(points, 10)
    assert len(chosen) == 10
    assert chosen == sorted(set(chosen))
    assert (chosen[0], chosen[-1]) == (0, count - 1)


def test_a_peak_survives() -> None:
    points = [(float(i), 100.0 if i == 3217 else 0.0) for i in range(10_000)]
    assert (3217.0, 100.0) in thin(points, 50)


@pytest.mark.parametrize(
    ("axis", "largest", "title"),
    [
        ("wall_s", 120.0, "wall time (s)"),
        ("wall_s", 3000.0, "wall time (min)"),
        ("wall_s", 90_000.0, "wall time (h)"),
        ("env_steps", 5000.0, "env steps"),
        ("env_steps", 400_000.0, "env steps (thousands)"),
        ("env_steps", 5e6, "env steps (millions)"),
    ],
)
def test_scales(axis: str, largest: float, title: str) -> None:
    assert scale_of(axis, largest).title == title  # type: ignore[arg-type]


def test_median_and_spread_over_seeds() -> None:
    curves = [[(0.0, y), (10.0, y)] for y in (0.0, 1.0, 2.0, 3.0, 10.0)]
    drawn = spread(curves, grid_points=3)
    assert drawn is not None
    assert drawn.median == [(0.0, 2.0), (5.0, 2.0), (10.0, 2.0)]
    assert drawn.low[0] == (0.0, 1.0)
    assert drawn.high[0] == (0.0, 3.0)


def test_a_median_ends_where_less_than_half_of_the_runs_are() -> None:
    drawn = spread([[(0.0, 1.0), (10.0, 1.0)], [(0.0, 3.0), (20.0, 3.0)], [(0.0, 5.0), (40.0, 5.0)]], grid_points=41)
    assert drawn is not None
    assert drawn.median[-1] == (20.0, 4.0)
    assert drawn.median[5] == (5.0, 3.0)


def test_one_run_is_its_own_median_and_none_is_nothing() -> None:
    drawn = spread([[(1.0, 5.0)]])
    assert drawn is not None
    assert drawn.median == drawn.low == drawn.high == [(1.0, 5.0)]
    assert spread([]) is None
    assert spread([[], []]) is None
    # Two that have nothing in common still are half of two.
    assert spread([[(0.0, 1.0), (1.0, 1.0)], [(5.0, 1.0), (6.0, 1.0)]]) is not None


def test_the_band_lies_around_the_mean_also_below_zero() -> None:
    evaluations = JournalLines()
    for i in range(3):
        evaluations.add({"wall_s": i, "mean_return": -100.0 + i, "std_return": 10.0})
    evaluations.add({"wall_s": 3, "mean_return": None, "std_return": 1.0})
    series = {part["name"]: part for part in charts.return_chart(evaluations, JournalLines(), "wall_s")["series"]}
    assert series["_spread low"]["data"] == [(0.0, -110.0), (1.0, -109.0), (2.0, -108.0)]
    assert {width for _, width in series["_spread high"]["data"]} == {20.0}
    assert series["_spread high"]["stackStrategy"] == "all"  # by default ECharts stacks by sign
    assert len(series["evaluation, mean ± std"]["data"]) == 3


def test_charts_of_long_runs_are_small() -> None:
    metrics = JournalLines()
    for i in range(4000):
        metrics.add({"wall_s": i, "env_steps": i, "train_return": i % 7, "critic_loss": i % 5})
    for options in (
        charts.return_chart(JournalLines(), metrics, "env_steps"),
        charts.metric_chart(metrics, "critic_loss", ""),
    ):
        assert sum(len(series["data"]) for series in options["series"]) <= 400
