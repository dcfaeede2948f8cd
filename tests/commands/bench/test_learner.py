"""`spreeze bench learner`: its figures fit each other, and its arithmetic is what an update really computes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from spreeze.commands.bench import learner
from spreeze.commands.bench.learner import LearnerFigures, Task, bench_learner, flops_per_row, measure_learner
from spreeze.errors import ConfigError
from spreeze.host.hardware import usable_cores
from spreeze.host.threads import learner_thread_candidates
from spreeze.learning.updates import EagerUpdates

CPU = torch.device("cpu")
SMALL = Task("cpu", 3, 1, (8,))
BATCH_SIZES = (8, 16)
TASKS = [SMALL, Task("cpu", 17, 6, (32, 32)), Task("cpu", 5, 2, (16, 8, 24)), Task("cpu", 348, 17, (64, 64))]


@pytest.fixture(autouse=True)
def small_and_quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(learner, "REPLAY_ROWS", 1000)
    monkeypatch.setattr(learner, "SETTLE_S", 0.01)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def bench(folder: Path, task: Task = SMALL) -> dict[str, Any]:
    path = folder / "figures.json"
    bench_learner(task, BATCH_SIZES, 0.05, path)
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def test_figures_fit_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = bench(tmp_path)

    assert content["task"] == {"device": "cpu", "obs_dim": 3, "act_dim": 1, "hidden": [8], "algo": "sac"}
    assert content["device_name"] == "cpu"
    assert content["peak_flops"] > 0
    assert content["failures"] == []
    figures = [LearnerFigures(**line) for line in content["figures"]]
    candidates = learner_thread_candidates(usable_cores())
    assert [line.batch_size for line in figures] == [
        size for size in BATCH_SIZES for _ in candidates for _ in ("plain", "bfloat16")
    ]
    for line in figures:
        assert line.update_hz > 0
        assert line.update_frame_hz == pytest.approx(line.batch_size * line.update_hz)
        flops = flops_per_row(SMALL) * line.update_frame_hz
        assert line.floor_share == pytest.approx(flops / content["peak_flops"])
        assert 0 < line.floor_share < 1  # nothing is faster than its arithmetic
        assert line.gpu_us is line.kernels is line.deviation is None  # a CPU has none of these
    for threads in candidates:
        assert sum(line.way.endswith(f" x{threads}") for line in figures) == 2 * len(BATCH_SIZES)
    printed = capsys.readouterr().out
    assert "3 observations, 1 actions, 8, on cpu" in printed
    for line in figures:
        assert line.way in printed
        assert f"{line.update_hz:,.0f}" in printed


def test_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner, "peak_flops", lambda _: pytest.fail("it has begun to measure"))
    with pytest.raises(ConfigError, match="--json"):
        bench_learner(SMALL, BATCH_SIZES, 0.05, tmp_path / "none" / "figures.json")


def products(widths: tuple[int, ...]) -> int:
    return sum(left * right for left, right in pairwise(widths))


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_arithmetic_of_an_update_is_that_of_its_passes(task: Task) -> None:
    """2 actors and 6 critics forward; 1 and 2 backward to the weights, 1 and 4 to the inputs but the task's."""
    actor = products((task.obs_dim, *task.hidden, 2 * task.act_dim))
    critic = products((task.obs_dim + task.act_dim, *task.hidden, 1))
    first_actor, first_critic = task.obs_dim * task.hidden[0], (task.obs_dim + task.act_dim) * task.hidden[0]
    backward = (2 * actor - first_actor) + 2 * (2 * critic - first_critic) + 2 * critic
    assert flops_per_row(task) == 2 * (2 * actor + 6 * critic + backward)


def test_rows_are_such_that_updates_stay_finite() -> None:
    task = Task("cpu", 17, 6, (32, 32))
    updates = EagerUpdates(learner.make_algorithm(task, CPU), learner._random_replay(task, CPU))
    for _ in range(50):
        updates.launch(64, 8)
    assert updates.figures.isfinite().all()
    assert updates.figures[0] < 10  # the critics' loss


def test_rate_counts_every_update_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(learner, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))

    class EightAtOnce:
        losses = torch.zeros(6)

        def launch(self, _batch_size: int, most: int) -> int:
            return min(8, most)

    # One second between any two looks at the clock: ten launches fit, and one look more is at the end.
    monkeypatch.setattr(learner, "SETTLE_S", 5.0)
    assert learner._rate(EightAtOnce(), 64, CPU, 11.0) == pytest.approx(8 * 10 / 12)


def test_learner_alone_is_measured_as_a_run_would_run() -> None:
    assert measure_learner("cpu", 8, 3, 1, (8,), 0.05) > 0
