from __future__ import annotations

import numpy as np
import pytest

from spreeze.runs.learning_curves import GRID_POINTS, join_runs, until


def test_a_curve_is_median_and_range_and_a_run_that_stopped_keeps_its_last_return() -> None:
    runs = [[(0.0, 0.0), (10.0, 100.0)], [(2.0, 20.0), (4.0, 60.0)], [(1.0, 0.0), (8.0, 0.0)], []]
    curve = join_runs(runs, "range")
    assert curve is not None
    assert (curve.x[0], curve.x[-1], len(curve.x)) == (2.0, 10.0, GRID_POINTS)  # from where all were evaluated
    assert (curve.low[0], curve.median[0], curve.high[0]) == (0.0, 20.0, 20.0)
    assert (curve.low[-1], curve.median[-1], curve.high[-1]) == (0.0, 60.0, 100.0)
    at = float(curve.x[100])
    assert curve.median[100] == pytest.approx(10 * at if at > 4 else np.median([10 * at, 20 * at - 20, 0]))


def test_what_was_evaluated_after_the_target_was_reached_does_not_count() -> None:
    series = [(1.0, 0.0), (2.0, 100.0), (2.1, -5.0)]
    assert until(series, 2.0) == series[:2]
    assert until(series, None) == series


@pytest.mark.filterwarnings("error")
def test_returns_that_have_no_difference_are_left_out() -> None:
    runs = [[(0.0, value), (1.0, -value), (2.0, 1.0)] for value in (1e308, -1e308, 1e100, 3.0)]
    curve = join_runs(runs, "quartiles")
    assert curve is not None
    assert np.isfinite([curve.low, curve.median, curve.high]).all()
    assert join_runs([[(0.0, 1e308)], [(0.0, -1e308)]], "range") is None


def test_quartiles_leave_the_extremes_out() -> None:
    curve = join_runs([[(0.0, float(value)), (1.0, float(value))] for value in (-1000, 1, 2, 3, 1000)], "quartiles")
    assert curve is not None
    assert (set(curve.low), set(curve.median), set(curve.high)) == ({1.0}, {2.0}, {3.0})


def test_a_run_that_does_not_stay_ends_the_curve() -> None:
    runs = [[(0.0, 0.0), (10.0, 100.0)], [(0.0, 0.0), (4.0, 60.0)], [(0.0, 0.0), (1.0, 10.0)]]
    curve = join_runs(runs, "range", stays=[False, False, True])
    assert curve is not None
    assert curve.x[-1] == 4.0
    assert (curve.low[-1], curve.median[-1], curve.high[-1]) == (10.0, 40.0, 60.0)


def test_runs_without_a_common_part_are_no_curve() -> None:
    runs = [[(0.0, 0.0), (1.0, 1.0)], [(5.0, 0.0), (6.0, 1.0)]]
    assert join_runs(runs, "range", stays=[False, False]) is None
    assert join_runs(runs, "range", stays=[True, False]) is not None


def test_one_evaluation_is_a_curve_and_none_is_not() -> None:
    curve = join_runs([[(3.0, 5.0)]], "range")
    assert curve is not None
    assert set(curve.median) == {5.0}
    assert join_runs([[], []], "range") is None


def test_evaluations_out_of_order_are_put_in_order() -> None:
    curve = join_runs([[(2.0, 20.0), (0.0, 0.0), (1.0, 10.0)]], "range")
    assert curve is not None
    assert curve.median == pytest.approx(10 * curve.x)
