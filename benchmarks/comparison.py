"""What a comparison with the peers has shown: the figures of each system, the tables and the picture.

In: the content of a result of side_by_side.py. Out: Markdown tables, and learning curves as a picture.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from charts import new_figure, save
from formats import Time, machine_text, markdown, median_of, seconds, span
from session import CpuUse
from shown import PAPER_NOTE, PAPER_RATES
from spreeze.commands.bench.curves import draw_band, dress
from spreeze.runs.learning_curves import until

SOLVE, THROUGHPUT = "side_by_side solve", "side_by_side throughput"
SPREEZE_NAME = re.compile(r"spreeze(-(?P<algo>[a-z]\w*))?(-(?P<batch>[1-9]\d*))?")
FINAL_EVALUATIONS = 3  # whose mean is the return that a run has at its end: one alone is luck

Evaluation = Sequence[float]


@dataclass(frozen=True)
class Run:
    system: str
    title: str
    seed: int
    failed: str | None = None
    """Why there are no figures."""
    reached: bool = False
    time_to_target_s: float | None = None
    """None where the target was not reached."""
    evaluation_s: float = 0.0
    """Subtracted already; 0 for Spreeze, which evaluates while it trains."""
    env_steps: int = 0
    updates: int = 0
    batch_size: int | None = None
    window_began_s: float | None = None
    window_s: float | None = None
    sampling_hz: float | None = None
    update_hz: float | None = None
    update_frame_hz: float | None = None
    cpu_percent: float | None = None
    """Of all cores, from window_began_s on."""
    gpu_percent: float | None = None
    cpu: CpuUse | None = None
    evaluations: list[Evaluation] = field(default_factory=list)
    """Seconds on the clock, environment steps and mean return of each."""
    device: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(kept: dict[str, Any]) -> Run:
        return Run(**{**kept, "cpu": None if kept["cpu"] is None else CpuUse(**kept["cpu"])})


@dataclass(frozen=True, eq=False)
class System:
    """The runs of Spreeze or of a peer."""

    name: str
    runs: list[Run]
    measured: list[Run]
    """Those that have figures."""
    limit_s: float

    @property
    def title(self) -> str:
        return self.runs[-1].title

    @property
    def is_ours(self) -> bool:
        return is_spreeze(self.name)

    @property
    def finals(self) -> list[float]:
        """The return at the end of each run that was evaluated."""
        last = [run.evaluations[-FINAL_EVALUATIONS:] for run in self.measured if run.evaluations]
        return [statistics.mean(mean_return for *_, mean_return in evaluations) for evaluations in last]

    @property
    def final(self) -> float:
        return statistics.median(self.finals)

    def time(self, goal: float | None = None) -> Time:
        """Return the median time to the target, or to the first evaluation at a return."""
        times = [run.time_to_target_s for run in self.measured]
        if goal is not None:
            times = [next((at_s for at_s, _, mean in run.evaluations if mean >= goal), None) for run in self.measured]
        return median_of(times, self.limit_s)

    def figures(self, name: str) -> list[float]:
        known = [getattr(run, name) for run in self.measured]
        return [figure for figure in known if figure is not None]

    def median(self, name: str) -> float:
        return statistics.median(self.figures(name))


def is_spreeze(system: str) -> bool:
    """Whether a system is Spreeze: `spreeze`, `spreeze-256` for a batch of 256, `spreeze-sac` for an algorithm."""
    return SPREEZE_NAME.fullmatch(system) is not None


def batch_of(system: str) -> str | None:
    """Return the batch that the name of a variant of Spreeze states."""
    return _stated(system, "batch")


def algo_of(system: str) -> str | None:
    """Return the algorithm that the name of a variant of Spreeze states."""
    return _stated(system, "algo")


def _stated(system: str, what: str) -> str | None:
    found = SPREEZE_NAME.fullmatch(system)
    return None if found is None else found[what]


def limit_of(system: str, settings: Mapping[str, Any]) -> float:
    """Return how long a system may run: as long as all, or as long as it was given alone."""
    return float((settings.get("shorter") or {}).get(system, settings["max_seconds"]))


def systems_of(content: dict[str, Any]) -> list[System]:
    """Return the systems that have runs, in the order in which they were named."""
    runs, settings = [Run.of(kept) for kept in content["runs"]], content["settings"]
    found = []
    for name in settings["systems"]:
        if own := [run for run in runs if run.system == name]:
            measured = [run for run in own if run.failed is None]
            found.append(System(name, own, measured, limit_of(name, settings)))
    return found


def ours_of(systems: Sequence[System]) -> System | None:
    """Return the first of the variants of Spreeze that has figures."""
    return next((system for system in systems if system.is_ours and system.measured), None)


def best_peer(systems: Sequence[System]) -> System | None:
    """Return the peer with the highest return at its end; None without a peer that was evaluated."""
    peers = [system for system in systems if not system.is_ours and system.finals]
    return max(peers, key=lambda system: system.final, default=None)


# --- tables ----------------------------------------------------------------------------------------------------


def table(content: dict[str, Any]) -> str:
    if content["benchmark"] == THROUGHPUT:
        return throughput_table(content)
    return solve_table(content) if content["settings"]["target_return"] is not None else curves_table(content)


def solve_table(content: dict[str, Any]) -> str:
    """Return a row for each system; runs that missed the target count as the limit and show as "> limit"."""
    systems = systems_of(content)
    ours = ours_of(systems)

    def cells(system: System) -> list[str]:
        each = ", ".join(seconds(run.time_to_target_s, system.limit_s) for run in system.measured)
        bold = "**" if system is ours else ""
        ratio = ratio_text(system.time(), ours and ours.time())
        return [f"{bold}{system.time()}{bold}", each, *work_cells(system), ratio]

    heads = ["system", "median s", "each seed", "env steps", "updates", "CPU", "GPU", "times ours"]
    return markdown(heads, system_rows(systems, len(heads), cells))


def curves_table(content: dict[str, Any]) -> str:
    """Return the return of each system at the end, and when it had that of the best peer first."""
    systems = systems_of(content)
    ours, goal = ours_of(systems), best_peer(systems)
    heads = ["system", "seconds", "return then", "env steps", "updates", "CPU", "GPU"]
    if goal is not None:
        heads += [f"s to {goal.final:,.0f}", "times ours"]

    def cells(system: System) -> list[str]:
        found = [f"{system.limit_s:.0f}", span(system.finals, ",.0f"), *work_cells(system)]
        if goal is None:
            return found
        time = system.time(goal.final)
        return [*found, str(time), ratio_text(time, ours and ours.time(goal.final))]

    shown = markdown(heads, system_rows(systems, len(heads), cells))
    return shown if goal is None or ours is None else f"{shown}\n\n{sooner_sentence(ours, goal)}"


def throughput_table(content: dict[str, Any]) -> str:
    """Return medians over the repeats with the lowest and the highest, and how many times theirs ours are."""
    systems, machine = systems_of(content), content["machine"]
    ours, compared = ours_of(systems), ("update_frame_hz", "sampling_hz")

    def ratios(theirs: Mapping[str, float], form: str) -> list[str]:
        return ["-" if ours is None else f"{ours.median(name) / theirs[name]:{form}}" for name in compared]

    def cells(system: System) -> list[str]:
        rates = [span(system.figures(name), ",.0f") for name in ("update_hz", *compared)]
        return [*rates, *usage_cells(system), *ratios({name: system.median(name) for name in compared}, ".2f")]

    last = ("ours / theirs: update frames", "env steps")
    heads = ["system", "updates/s", "update frames/s", "env steps/s", "CPU", "GPU", *last]
    rows = system_rows(systems, len(heads), cells)
    if not machine["gpus"]:
        return markdown(heads, rows)
    stated = [f"{PAPER_RATES[name]:,}" for name in compared]
    rows.append(["Spreeze, as its paper states", "-", *stated, "-", "-", *ratios(PAPER_RATES, ".1f")])
    others = f"All other rows: {machine_text(machine)}, {content['settings']['env']}."
    return f"{markdown(heads, rows)}\n\n{PAPER_NOTE} {others}"


def system_rows(systems: Sequence[System], columns: int, cells: Callable[[System], list[str]]) -> list[list[str]]:
    """Return a row for each system; the reason for one that has no figures at all."""
    rows = []
    for system in systems:
        if not system.measured:
            reason = str(system.runs[-1].failed).replace("|", "/")
            rows.append([system.title, f"failed: {reason}", *["-"] * (columns - 2)])
            continue
        failures = len(system.runs) - len(system.measured)
        failed = f" ({failures} of {len(system.runs)} failed)" if failures else ""
        rows.append([system.title + failed, *cells(system)])
    return rows


def work_cells(system: System) -> list[str]:
    return [*(f"{system.median(name):,.0f}" for name in ("env_steps", "updates")), *usage_cells(system)]


def usage_cells(system: System) -> list[str]:
    percents = [system.figures(name) for name in ("cpu_percent", "gpu_percent")]
    return [f"{statistics.median(of_all):.0f}%" if of_all else "-" for of_all in percents]


def ratio_text(time: Time, ours: Time | None) -> str:
    """Return how many times ours a time is."""
    if ours is None or (time.is_bound and ours.is_bound):
        return "-"  # nothing to divide by, or two bounds, whose ratio says nothing
    sign = "> " if time.is_bound else "< " if ours.is_bound else ""
    return f"{sign}{time.seconds / ours.seconds:.2f}"


def sooner_sentence(ours: System, goal: System) -> str:
    time, has = ours.time(goal.final), f"{goal.title} has {goal.final:,.0f} after {goal.limit_s:.0f} s"
    if time.is_bound:
        return f"{has}; Spreeze does not have it in the time it had."
    return f"{has}; Spreeze has it after {time.seconds:.1f} s: {goal.limit_s / time.seconds:.1f} times sooner."


def picture(content: dict[str, Any], path: Path) -> None:
    """Draw return against wall time: median and range over seeds, a colour for each system."""
    settings, figure = content["settings"], new_figure(6.4, 4.4)
    axes, begins, limit_s = figure.add_subplot(), [], settings["max_seconds"]
    if settings["target_return"] is not None:
        axes.axhline(settings["target_return"], linestyle="--", linewidth=0.8, color="grey")
    for place, system in enumerate(systems_of(content)):
        series = [
            until([(at_s, mean) for at_s, _, mean in run.evaluations if at_s <= limit_s], run.time_to_target_s)
            for run in system.measured
            if run.evaluations
        ]
        label = f"{system.title} ({len(series)} run{'' if len(series) == 1 else 's'})"
        begins.append(draw_band(axes, series, label, place))
    axes.set_xscale("log")  # ours and the slowest are an order of magnitude apart
    axes.set_xlim(min((begin for begin in begins if begin is not None), default=1.0), limit_s)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    dress(axes, "wall time from the start of the command, s", "mean return of an evaluation")
    save(figure, path, f"{settings['env']}, {machine_text(content['machine'])}: median and range over seeds")
