from __future__ import annotations

import json
import os
import time

import numpy as np
import pytest

from spreeze.algorithms.sac import Sac
from spreeze.channels.metrics import MetricsChannel
from spreeze.channels.transitions import RingChannel, RowLayout, TransitionChannel
from spreeze.host.hardware import UsageMeter
from spreeze.runs.records import Measurement, figures_in
from spreeze.supervision.meter import Meter

WARMUP = 1000
NAMES = [figure.name for figure in Sac.figures]


@pytest.fixture
def metrics() -> MetricsChannel:
    return MetricsChannel()


def make_meter(metrics: MetricsChannel, started_at: float | None = None, is_split: bool = False) -> Meter:
    started_at = time.monotonic() if started_at is None else started_at
    return Meter(metrics, UsageMeter(), started_at, WARMUP, Sac.figures, is_split)


def measure(meter: Meter) -> Measurement:
    return meter.measure(num_samplers=3, pids_by_role={"supervisor": [os.getpid()]}, written=())


def test_counters_are_summed_over_all_samplers(metrics: MetricsChannel) -> None:
    meter = make_meter(metrics)
    for index, episodes in ((0, 2), (1, 3), (200, 5)):
        metrics.samplers[index]["episodes"] = episodes
        metrics.samplers[index]["ring_wait_s"] = 0.5
        metrics.samplers[index]["ratio_wait_s"] = 0.25
    metrics.learner["updates"] = 7
    metrics.learner["batch_size"] = 256
    metrics.learner["replay_rows"] = 90
    metrics.learner["rows_rejected"] = 4
    measurement = measure(meter)
    assert measurement.episodes == 10
    assert measurement.ring_wait_s == 1.5
    assert measurement.ratio_wait_s == 0.75
    assert (measurement.updates, measurement.batch_size) == (7, 256)
    assert (measurement.replay_rows, measurement.rows_rejected) == (90, 4)
    assert measurement.num_samplers == 3
    assert measurement.rss_bytes > 0


def test_environment_steps_are_those_stored_in_the_pool(metrics: MetricsChannel) -> None:
    meter = make_meter(metrics)
    metrics.samplers[0]["env_steps"] = 500
    metrics.learner["rows_stored"] = 400
    assert measure(meter).env_steps == 400


def test_rates_are_counters_over_the_window(metrics: MetricsChannel) -> None:
    before_first = time.monotonic()
    meter = make_meter(metrics)
    after_first = time.monotonic()
    metrics.learner["rows_stored"] = 10**9
    metrics.learner["updates"] = 2 * 10**8
    metrics.learner["update_frames"] = 64 * 2 * 10**8
    before_second = time.monotonic()
    measurement = measure(meter)
    after_second = time.monotonic()
    slowest, fastest = 10**9 / (after_second - before_first), 10**9 / max(before_second - after_first, 1e-9)
    assert slowest - 0.1 <= measurement.sampling_hz <= fastest + 0.1
    assert measurement.update_hz == pytest.approx(measurement.sampling_hz / 5, rel=1e-6)
    assert measurement.update_frame_hz == pytest.approx(64 * measurement.update_hz, rel=1e-6)


def test_window_begins_where_the_last_one_ended(metrics: MetricsChannel) -> None:
    meter = make_meter(metrics)
    metrics.learner["rows_stored"] = 1000
    metrics.learner["updates"] = 1000
    metrics.learner["update_frames"] = 1000
    assert measure(meter).sampling_hz > 0
    quiet = measure(meter)
    assert (quiet.sampling_hz, quiet.update_hz, quiet.update_frame_hz) == (0.0, 0.0, 0.0)
    assert quiet.env_steps == 1000


def test_batch_sizes_may_change_within_a_window(metrics: MetricsChannel) -> None:
    meter = make_meter(metrics)
    metrics.learner["updates"] = 20_000_000
    metrics.learner["update_frames"] = 10_000_000 * 100 + 10_000_000 * 300
    metrics.learner["batch_size"] = 300
    measurement = measure(meter)
    assert measurement.update_frame_hz == pytest.approx(200 * measurement.update_hz, rel=1e-6)


def test_wall_clock_counts_from_the_start_of_the_command(metrics: MetricsChannel) -> None:
    meter = make_meter(metrics, started_at=time.monotonic() - 1000)
    first, second = measure(meter), measure(meter)
    assert 1000 <= first.wall_s <= second.wall_s


@pytest.mark.parametrize(
    ("env_steps", "updates", "ratio"),
    [(0, 0, 0.0), (WARMUP, 0, 0.0), (WARMUP + 400, 100, 0.25), (WARMUP + 3, 1, 0.33333)],
)
def test_ratio_counts_after_the_warmup(metrics: MetricsChannel, env_steps: int, updates: int, ratio: float) -> None:
    meter = make_meter(metrics)
    metrics.learner["rows_stored"] = env_steps
    metrics.learner["updates"] = updates
    assert measure(meter).updates_per_step == ratio


def test_training_return_is_the_mean_of_the_last_episodes(metrics: MetricsChannel) -> None:
    meter = make_meter(metrics)
    assert measure(meter).train_return is None
    metrics.samplers[0]["episodes"], metrics.samplers[0]["return_sum"] = 2, -30.0
    metrics.samplers[1]["episodes"], metrics.samplers[1]["return_sum"] = 1, -60.0
    assert measure(meter).train_return == -30.0
    assert measure(meter).train_return == -30.0  # no episode has ended since: the last mean stands
    metrics.samplers[1]["episodes"], metrics.samplers[1]["return_sum"] = 3, -50.0
    assert measure(meter).train_return == 5.0


def test_lag_is_the_mean_age_of_the_policies_in_use(metrics: MetricsChannel) -> None:
    meter = make_meter(metrics)
    assert measure(meter).policy_lag_s is None
    before = time.monotonic()
    metrics.samplers[0]["policy_published_at"] = before - 10
    metrics.samplers[5]["policy_published_at"] = before - 30
    lag_s = measure(meter).policy_lag_s
    assert lag_s is not None
    assert 20 - 1e-3 <= lag_s <= 20 + (time.monotonic() - before) + 1e-3


@pytest.mark.parametrize("is_split", [False, True])
def test_figures_are_passed_on_once_there_are_any(metrics: MetricsChannel, is_split: bool) -> None:
    meter = make_meter(metrics, is_split=is_split)
    assert measure(meter).figures == dict.fromkeys(NAMES)
    metrics.learner["updates"] = 1
    metrics.learner["figures"][0, : len(NAMES)] = np.arange(len(NAMES))
    metrics.actor["figures"][0, : len(NAMES)] = -np.arange(len(NAMES))
    for index, figure in enumerate(Sac.figures):
        sign = -1 if is_split and figure.side == "actor" else 1
        assert measure(meter).figures[figure.name] == sign * index


def test_a_figure_that_is_not_finite_is_missing(metrics: MetricsChannel) -> None:
    metrics.learner["updates"], metrics.learner["figures"] = 1, np.nan
    assert measure(make_meter(metrics)).figures == dict.fromkeys(NAMES)


def test_measurement_is_a_line_of_plain_json(metrics: MetricsChannel) -> None:
    measurement = measure(make_meter(metrics))
    line = json.loads(json.dumps(measurement.as_line()))
    documented = (
        "wall_s env_steps updates episodes sampling_hz update_hz update_frame_hz batch_size num_samplers "
        "updates_per_step policy_lag_s replay_rows ring_wait_s train_return cpu_percent gpu_percent rss_bytes "
        "gpu_bytes ring_fill cpu_cores cpu_by_role"
    )
    assert {*documented.split(), *NAMES} <= line.keys()
    assert figures_in(line) == NAMES
    of_parts = [*line.pop("cpu_cores"), *line.pop("cpu_by_role").values()]
    assert all(value is None or type(value) in (int, float) for value in (*line.values(), *of_parts))


def test_fill_is_the_mean_over_the_channels_that_are_written(metrics: MetricsChannel) -> None:
    meter = make_meter(metrics)
    layout = RowLayout(1, 1)
    full, quarter, slow, unknown = (RingChannel("ring", 2) for _ in range(4))
    for channel, rows in ((full, 8), (quarter, 2), (slow, 4), (unknown, 8)):
        channel.allocate(layout, 8)
        channel.writer().write(np.zeros((rows, layout.width), np.float32), stopping=lambda: False)
    for _ in slow.reader(0).read():
        pass  # one of two readers has taken all, the other none
    assert fill_of(meter, full, quarter, slow) == pytest.approx((1.0 + 0.25 + 0.5) / 3, abs=1e-4)
    assert fill_of(meter, quarter) == 0.25
    assert fill_of(meter) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unknown, "fill", lambda: None)  # as a channel of a benchmark whose owner cannot tell
        assert fill_of(meter, unknown) is None
    for channel in (full, quarter, slow, unknown):
        channel.close()


def fill_of(meter: Meter, *channels: TransitionChannel) -> float | None:
    return meter.measure(1, {}, channels).ring_fill


def test_cores_are_told_for_each_core_and_each_role(metrics: MetricsChannel) -> None:
    meter = make_meter(metrics)
    started, began = time.process_time(), time.monotonic()
    while time.process_time() < started + 0.3:
        pass
    at_most_s = time.monotonic() - began  # a little less than the window
    measurement = meter.measure(1, {"supervisor": [os.getpid()], "sampler": []}, ())
    assert measurement.cpu_by_role.keys() == {"supervisor", "sampler"}
    assert measurement.cpu_by_role["supervisor"] * at_most_s >= 0.3 - 0.12  # the system counts in ticks of 0.01 s
    assert measurement.cpu_by_role["sampler"] == 0.0
    assert 1 <= len(measurement.cpu_cores) <= (os.cpu_count() or 1)
    assert all(0 <= percent <= 100 for percent in measurement.cpu_cores)


def test_mean_rates_count_from_the_first_step(metrics: MetricsChannel) -> None:
    meter = make_meter(metrics, started_at=time.monotonic() - 1000)
    assert meter.mean_rates() == (0.0, 0.0)
    before = time.monotonic()
    metrics.samplers[0]["first_step_at"] = before - 10
    metrics.samplers[1]["first_step_at"] = before - 20  # the first of all
    metrics.learner["first_update_at"] = before - 5
    metrics.learner["rows_stored"] = 2000
    metrics.learner["update_frames"] = 5000
    sampling_hz, update_frame_hz = meter.mean_rates()
    passed_s = time.monotonic() - before
    assert 2000 / (20 + passed_s) - 1e-6 <= sampling_hz <= 2000 / 20 + 1e-6
    assert 5000 / (5 + passed_s) - 1e-6 <= update_frame_hz <= 5000 / 5 + 1e-6
