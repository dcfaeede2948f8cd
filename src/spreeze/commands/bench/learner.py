"""`spreeze bench learner`: the speed of updates without samplers, with each update engine.

Rows are random, the networks have the usual size, and the replay is on the device. The floor is the time that the
matrix products of an update would take at the rate of one large product, measured in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from spreeze.algorithms.algorithm import Algorithm
from spreeze.algorithms.kernels.cpu import CPU
from spreeze.algorithms.kernels.operations import PLAIN
from spreeze.algorithms.spec import AlgorithmSpec
from spreeze.channels.transitions import RowLayout
from spreeze.commands.bench.machine import write_benchmark
from spreeze.config import LearnerRole
from spreeze.config.own_settings import find_algorithm
from spreeze.errors import one_line
from spreeze.host.hardware import usable_cores
from spreeze.host.output_files import require_writable
from spreeze.host.threads import learner_thread_candidates
from spreeze.learning.replay import Replay
from spreeze.learning.transfers import Flight
from spreeze.learning.updates import UPDATES_PER_LAUNCH, EagerUpdates, GraphUpdates, Updates

REPLAY_ROWS, COUNTED_ROWS = 200_000, 64
SETTLE_S = 0.3  # caches, clocks and the first launches
PEAK_SIZE, PEAK_REPEATS = 8192, 5


@dataclass(frozen=True)
class Task:
    """What is updated, and where."""

    device: str
    obs_dim: int
    act_dim: int
    hidden: tuple[int, ...]
    algo: str = "sac"


@dataclass(frozen=True)
class LearnerFigures:
    """The results of one update engine at one batch size."""

    batch_size: int
    way: str
    """The engine; the name of this field in result files is that of version 0.1."""
    update_hz: float
    update_frame_hz: float
    gpu_us: float | None
    """Time of one update in GPU kernels."""
    kernels: float | None
    """Number of kernels of one update."""
    floor_share: float
    """The arithmetic floor as a share of the time of one update."""
    deviation: float | None
    """Difference from eager updates, see `GraphUpdates.deviation`."""


def bench_learner(task: Task, batch_sizes: tuple[int, ...], seconds: float, json_path: Path | None) -> None:
    """Measure every engine at every batch size, and print a table."""
    require_writable(json_path)
    peak, floor_flops = peak_flops(task.device), flops_per_row(task)
    console = Console()
    measured: list[LearnerFigures] = []
    failures: list[str] = []
    for batch_size in batch_sizes:
        for engine, updates, deviation in _engines(task, batch_size, failures):
            measured.append(_measure(task, batch_size, engine, updates, deviation, floor_flops / peak, seconds))
    console.print(_table(task, measured, peak))
    for failure in failures:
        console.print(f"not measured: {failure}")
    about = {"task": asdict(task), "device_name": _device_name(task.device), "peak_flops": peak}
    figures = [asdict(figures) for figures in measured]
    write_benchmark(json_path, "learner", {**about, "figures": figures, "failures": failures})


def measure_learner(
    device: str,
    batch_size: int,
    obs_dim: int,
    act_dim: int,
    hidden: tuple[int, ...],
    seconds: float,
    role: LearnerRole = "all",
    algo: str = "sac",
) -> float:
    """Return updates/s of the engine that a run would use, for a whole update or for one side of a split learner."""
    task = Task(device, obs_dim, act_dim, hidden, algo)
    if device == "cpu":
        engines = _engines(task, batch_size, [], role)
        return max(_rate(updates, batch_size, torch.device(device), seconds) for _, updates, _ in engines)
    *_, (_, updates, _) = _engines(task, batch_size, [], role)
    return _rate(updates, batch_size, torch.device(device), seconds)


def peak_flops(device: str) -> float:
    """Return operations per second of one large matrix product: bfloat16 on a GPU, float32 on a CPU."""
    is_cuda = device != "cpu"
    size = PEAK_SIZE if is_cuda else PEAK_SIZE // 8
    kind = torch.bfloat16 if is_cuda else torch.float32
    left, right = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
    best = 0.0
    for _ in range(PEAK_REPEATS):
        _wait(device)
        began = time.perf_counter()
        left @ right
        _wait(device)
        best = max(best, 2 * size**3 / (time.perf_counter() - began))
    return best


def _engines(
    task: Task, batch_size: int, failures: list[str], role: LearnerRole = "all"
) -> Iterator[tuple[str, Updates, float | None]]:
    """Yield each engine with its name and deviation; on a GPU the fastest last."""
    device = torch.device(task.device)
    torch.manual_seed(0)
    replay = _random_replay(task, device)
    algorithm = make_algorithm(task, device, role)
    eager = EagerUpdates(algorithm, replay)
    if device.type != "cuda":
        for threads, operations in product(learner_thread_candidates(usable_cores()), (PLAIN, CPU)):
            torch.set_num_threads(threads)
            algorithm.operations = operations
            yield f"{operations.name} x{threads}", eager, None
        return
    yield "eager", eager, None
    graph = GraphUpdates(make_algorithm(task, device, role), replay, PLAIN)
    yield "graph", graph, graph.deviation(batch_size)
    try:
        from spreeze.algorithms.kernels.fused import FUSED

        fused = GraphUpdates(make_algorithm(task, device, role), replay, FUSED)
        deviation = fused.deviation(batch_size)
    except Exception as error:
        failures.append(f"fused kernels: {type(error).__name__}: {one_line(error)}")
        return
    yield "fused", fused, deviation


def _measure(
    task: Task, batch_size: int, engine: str, updates: Updates, deviation: float | None, row_s: float, seconds: float
) -> LearnerFigures:
    update_hz = _rate(updates, batch_size, torch.device(task.device), seconds)
    gpu_us, kernels = (None, None) if task.device == "cpu" else _profile(updates, batch_size)
    floor_s = row_s * batch_size
    return LearnerFigures(
        batch_size, engine, update_hz, update_hz * batch_size, gpu_us, kernels, floor_s * update_hz, deviation
    )


def _rate(updates: Updates, batch_size: int, device: torch.device, seconds: float) -> float:
    flight = Flight(device)

    def run_for(duration: float) -> tuple[int, float]:
        began, done = time.perf_counter(), 0
        while time.perf_counter() - began < duration:
            done += flight.add(updates.launch(batch_size, UPDATES_PER_LAUNCH))
        done += flight.finished()
        return done, time.perf_counter() - began

    run_for(SETTLE_S)
    done, spent = run_for(seconds)
    return done / spent


def _profile(updates: Updates, batch_size: int) -> tuple[float, float]:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        count = updates.launch(batch_size, UPDATES_PER_LAUNCH)
        torch.cuda.synchronize()
    events = [event for event in profiler.key_averages() if event.device_time_total > 0]
    spent_us = sum(event.device_time_total for event in events)
    return spent_us / count, sum(event.count for event in events) / count


def _random_replay(task: Task, device: torch.device, count: int = REPLAY_ROWS) -> Replay:
    choices, rng = _choices_of(task), np.random.default_rng(0)
    layout = RowLayout(task.obs_dim, len(choices), "int32") if choices else RowLayout(task.obs_dim, task.act_dim)
    replay = Replay(layout, count, device)
    rows = rng.standard_normal((count, layout.width), np.float32)
    if choices:
        layout.records(rows)["action"] = rng.integers(0, choices, (count, len(choices)))
    else:
        rows[:, layout.action] = np.tanh(rows[:, layout.action])
    rows[:, layout.terminated] = rows[:, layout.terminated] > 2
    rows[:, layout.discount] = 0.99
    replay.add(rows)
    replay.flush()
    return replay


def _choices_of(task: Task) -> tuple[int, ...]:
    """Return how many values a discrete action has, where the algorithm takes no other."""
    return () if "continuous" in find_algorithm(task.algo).action_kinds else (task.act_dim,)


def make_algorithm(task: Task, device: torch.device, role: LearnerRole = "all") -> Algorithm:
    """Return an untrained algorithm for a task."""
    algorithm = find_algorithm(task.algo)
    return algorithm(
        AlgorithmSpec(
            observation_size=task.obs_dim,
            action_size=len(_choices_of(task)) or task.act_dim,
            device=device,
            choices=_choices_of(task),
            settings=algorithm.Settings(),
            hidden=task.hidden,
            learning_rate=3e-4,
            tau=0.005,
            actor_delay=algorithm.recipe.actor_delay,
            role=role,
        )
    )


def flops_per_row(task: Task) -> float:
    """Return the operations of the matrix products of one update, per row of its batch: two per multiplication."""
    from torch.utils.flop_counter import FlopCounterMode

    device = torch.device("cpu")
    algorithm, replay = make_algorithm(task, device), _random_replay(task, device, COUNTED_ROWS)
    counter = FlopCounterMode(display=False)
    with counter:
        for _ in range(algorithm.actor_delay):  # the actor's turn is one of them
            algorithm.update(replay.draw(COUNTED_ROWS))
    return counter.get_total_flops() / COUNTED_ROWS / algorithm.actor_delay


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def _device_name(device: str) -> str:
    return "cpu" if device == "cpu" else torch.cuda.get_device_name(torch.device(device))


def _table(task: Task, measured: list[LearnerFigures], peak: float) -> Table:
    widths = " x ".join(str(width) for width in task.hidden)
    table = Table(
        title=f"{task.algo.upper()}, {task.obs_dim} observations, {task.act_dim} actions, {widths}, "
        f"on {_device_name(task.device)} ({peak / 1e12:.1f} TFLOP/s at best)",
        box=None,
        pad_edge=False,
        title_justify="left",
    )
    for column in ("batch", "engine", "updates/s", "frames/s", "GPU us", "kernels", "of floor", "deviation"):
        table.add_column(column, justify="left" if column == "engine" else "right", no_wrap=True)
    for figures in measured:
        table.add_row(
            f"{figures.batch_size:,}",
            figures.way,
            f"{figures.update_hz:,.0f}",
            f"{figures.update_frame_hz / 1e6:.3g}M",
            "-" if figures.gpu_us is None else f"{figures.gpu_us:.0f}",
            "-" if figures.kernels is None else f"{figures.kernels:.0f}",
            f"{figures.floor_share:.0%}",
            "-" if figures.deviation is None else f"{figures.deviation:.3f}",
        )
    return table
