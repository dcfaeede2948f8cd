"""`spreeze tune`: measures a grid of samplers x batch size, and compares it with the settings that a run adapts to.

One training begins with the defaults and adapts. A second one measures the whole grid: its settings are changed while
it runs, as an adaptation changes them. Out: a table, JSON, and a heat map with the adapted settings marked.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spreeze.adapt.adaptation import Adaptation, Gauge
from spreeze.adapt.objective import Sample, objective
from spreeze.adapt.plan import Plan, batch_size_bounds, plan_processes
from spreeze.adapt.wording import describe
from spreeze.channels.metrics import MAX_SAMPLERS
from spreeze.commands.bench.heat_map import draw_heat_map
from spreeze.commands.bench.machine import write_benchmark
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.config.run_settings import RunSettings
from spreeze.errors import ConfigError, RunFailed
from spreeze.host.hardware import this_machine
from spreeze.host.output_files import require_writable
from spreeze.supervision.request import MakeDriver
from spreeze.supervision.supervisor import supervise
from spreeze.supervision.workers import Workers
from spreeze.views.display import QuietDisplay
from spreeze.views.picture_formats import require_drawable

ROUNDS = 2  # through the grid, forwards and backwards, so that changes over time do not favour some settings
START_LIMIT_S = 180.0  # for settings to take effect; much longer than expected


@dataclass(frozen=True)
class Cell:
    """One point of the grid, or the adapted settings. Rates are medians over its samples."""

    settings: RunSettings
    sampling_hz: float
    update_hz: float
    update_frame_hz: float
    objective: float
    samples: tuple[Sample, ...]

    @staticmethod
    def of(settings: RunSettings, samples: Sequence[Sample]) -> Cell:
        """Summarise samples."""

        def median(name: str) -> float:
            return float(statistics.median(getattr(sample, name) for sample in samples))

        rates = (median("sampling_hz"), median("update_hz"), median("update_frame_hz"))
        return Cell(settings, *rates, statistics.median(map(objective, samples)), tuple(samples))


@dataclass(frozen=True)
class Grid:
    """All results. The fields of the JSON."""

    env: str
    device: str
    cores: int
    adapt_seconds: float
    cells: tuple[Cell, ...]
    adapted: Cell
    """The settings found by the adaptation after `adapt_seconds`, measured together with the grid."""
    share_of_best: float
    """Its objective as a share of the best one measured, itself included."""


class Tour:
    """Changes a run's settings to each of a list in turn, and keeps the samples of each."""

    def __init__(self, workers: Workers, stops: Sequence[RunSettings], samples_each: int) -> None:
        self._workers, self._stops, self._samples_each = workers, list(stops), samples_each
        self._gauge = Gauge(workers)
        self._taken = 0
        self._arrived_at = time.monotonic()
        self.samples: dict[RunSettings, list[Sample]] = {settings: [] for settings in stops}
        self._workers.use(self._stops[0])

    @property
    def is_over(self) -> bool:
        """Whether all settings were measured."""
        return not self._stops

    def turn(self, now: float) -> None:
        """Take a sample if one is due; change to the next settings after enough of them."""
        if self.is_over:
            return
        sample = self._gauge.sample(self._stops[0], now)
        if sample is None:
            if now > self._arrived_at + START_LIMIT_S:
                raise ConfigError(
                    f"{describe(self._stops[0])} did not take effect within {START_LIMIT_S:.0f} s: "
                    "leave it out of the grid"
                )
            return
        self._arrived_at = now
        self.samples[self._stops[0]].append(sample)
        self._taken += 1
        if self._taken == self._samples_each:
            self._taken = 0
            self._stops.pop(0)
            if self._stops:
                self._workers.use(self._stops[0])
                self._gauge.restart()


@dataclass(frozen=True)
class GridRequest:
    """What to measure."""

    samplers: tuple[int, ...] = ()
    batch_sizes: tuple[int, ...] = ()
    """Empty: a range around what a run would choose."""
    samples: int = 4
    adapt_seconds: float = 45.0

    def __post_init__(self) -> None:
        if min((1, *self.samplers, *self.batch_sizes)) < 1 or self.samples < 1 or not self.adapt_seconds > 0:
            raise ConfigError("--samplers, --batch-sizes, --samples and --adapt-seconds must be above 0")


def tune_environment(config: Config, request: GridRequest, json_path: Path | None, picture_path: Path | None) -> None:
    """Adapt, measure the grid, print the results, and write the requested files."""
    json_path = require_writable(json_path)
    if picture_path is not None:
        require_drawable(picture_path, "--picture", ", or leave it out and use --json")
    picture_path = require_writable(picture_path, "--picture")
    grid = measure_grid(config, request)
    print("\n".join(lines(grid)))
    figures = as_json(grid)
    write_benchmark(json_path, "tune", figures)
    if picture_path is not None:
        draw_heat_map(figures, picture_path)


def measure_grid(config: Config, request: GridRequest) -> Grid:
    """Let a run adapt, then measure the grid and the adapted settings in another run."""
    machine = this_machine()
    plan = plan_processes(config, machine)
    if max(request.samplers, default=0) > MAX_SAMPLERS:
        raise ConfigError(f"--samplers {max(request.samplers)} is above the maximum of {MAX_SAMPLERS}")
    device = plan.config.learning.device
    samplers = request.samplers or default_samplers(machine.cores, plan.settings.samplers)
    batch_sizes = request.batch_sizes or default_batch_sizes(plan.config)
    print(f"adapting for {request.adapt_seconds:.0f} s on {machine.cores} cores, learner on {device}")
    adapted = _adapt(config, request.adapt_seconds)
    print(f"adapted to {describe(adapted)}")
    print(f"measuring {len(samplers)} x {len(batch_sizes)} settings, {ROUNDS} times")
    # Other settings are those of the adaptation, so that the grid shows the effect of these two alone.
    points = [adapted._replace(samplers=n, batch_size=b) for n in samplers for b in batch_sizes]
    stops = [*points, adapted, *reversed(points), adapted]
    measured = measure_settings(config, stops, request.samples)
    cells = tuple(Cell.of(point, measured[point]) for point in points)
    final = Cell.of(adapted, measured[adapted])
    best = max(cell.objective for cell in (*cells, final))
    return Grid(config.env, device, machine.cores, request.adapt_seconds, cells, final, final.objective / best)


def default_samplers(cores: int, chosen: int) -> tuple[int, ...]:
    """Return the numbers of samplers to measure: from one to more than there are cores."""
    numbers = {1, cores // 4, cores // 2, chosen, cores - 1, cores, cores + cores // 2}
    return tuple(sorted(number for number in numbers if number > 0))


def default_batch_sizes(config: Config) -> tuple[int, ...]:
    """Return the batch sizes to measure: the powers of two between an adaptation's bounds."""
    low, high = batch_size_bounds(config, config.learning.replay_rows)
    return tuple(low * 2**i for i in range(64) if low * 2**i <= high)


def _adapt(config: Config, seconds: float) -> RunSettings:
    adaptations: list[Adaptation] = []
    machine, started_at = this_machine(), time.monotonic()

    def print_event(kind: str, reason: str, **_details: object) -> None:
        del kind  # all events are those of an adaptation
        print(f"{time.monotonic() - started_at:7.1f} s  {reason}")

    def make(workers: Workers, plan: Plan) -> Adaptation:
        adaptations.append(Adaptation(workers, plan, config, machine, print_event, lambda _settings: None))
        return adaptations[0]

    drive_run(config.replace(max_seconds=seconds), make)
    best = adaptations[0].best if adaptations else None
    if best is None:
        raise RunFailed(f"no update was made within {seconds:.0f} s: increase --adapt-seconds")
    return best


def measure_settings(
    config: Config, stops: Sequence[RunSettings], samples_each: int
) -> dict[RunSettings, list[Sample]]:
    """Change the settings of one training to each of these in turn; return the samples of each."""
    tours: list[Tour] = []

    def make(workers: Workers, _plan: Plan) -> Tour:
        tours.append(Tour(workers, stops, samples_each))
        return tours[0]

    drive_run(config.replace(max_samplers=max(stop.samplers for stop in stops)), make)
    if not tours[0].is_over:
        raise KeyboardInterrupt  # the user ended the run, and so the command
    return tours[0].samples


def drive_run(config: Config, make_driver: MakeDriver) -> None:
    """Train in a folder of its own until the driver is over."""
    with tempfile.TemporaryDirectory() as folder:
        config = config.replace(run_dir=str(Path(folder) / "run"), checkpoint_interval_s=0)
        result = supervise(config, EnvSpec.of(config), time.monotonic(), QuietDisplay(), make_driver)
    if result.stop_reason in ("interrupted", "terminated"):
        raise KeyboardInterrupt


# --- what is shown ---------------------------------------------------------------------------------------------


def lines(grid: Grid) -> list[str]:
    """Return a table: a row per number of samplers, a column per batch size, the objective as a share of the best."""
    samplers = sorted({cell.settings.samplers for cell in grid.cells})
    batch_sizes = sorted({cell.settings.batch_size for cell in grid.cells})
    by_point = {(cell.settings.samplers, cell.settings.batch_size): cell for cell in grid.cells}
    best = max(cell.objective for cell in (*grid.cells, grid.adapted))
    table = [
        "objective (sampling_hz x update_hz x update_frame_hz)^(1/3), as a share of the best",
        "samplers" + "".join(f"{f'batch {size}':>14}" for size in batch_sizes),
    ]
    for number in samplers:
        shares = [by_point[number, size].objective / best for size in batch_sizes]
        table.append(f"{number:>8}" + "".join(f"{share:>14.0%}" for share in shares))
    top = max(grid.cells, key=lambda cell: cell.objective)
    for name, cell in (("best of grid", top), ("adapted", grid.adapted)):
        table.append(
            f"{name:<14}{describe(cell.settings)}: {cell.sampling_hz:,.0f} env steps/s, "
            f"{cell.update_hz:,.0f} updates/s, {cell.update_frame_hz:,.0f} frames/s"
        )
    return [*table, f"adapted after {grid.adapt_seconds:.0f} s: {grid.share_of_best:.1%} of the best objective"]


def as_json(grid: Grid) -> dict[str, Any]:
    """Return the figures as a JSON object."""

    def plain(cell: Cell) -> dict[str, Any]:
        return {**asdict(cell), "settings": cell.settings._asdict()}

    return {**asdict(grid), "cells": [plain(cell) for cell in grid.cells], "adapted": plain(grid.adapted)}
