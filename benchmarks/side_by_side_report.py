"""What side_by_side.py shows: the Markdown tables and the picture, made from the content of its JSON alone.

In: that content. Out: table() and picture(). A median over runs that missed the target is a bound, and marked as one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from paper import PAPER_SAMPLING_HZ, PAPER_UPDATE_FRAME_HZ
from side_by_side_runs import Run, is_spreeze, limit_of
from sitting import DISTURBED_CORES, span
from spreeze.runs.learning_curves import join_runs, until
from spreeze.views.plot import COLOURS, DOTS_AN_INCH, LINES, STYLE

SOLVE, THROUGHPUT = "side_by_side solve", "side_by_side throughput"
FINAL_EVALUATIONS = 3  # whose mean is the return that a run has at its end: one alone is luck
PICTURE_INCHES = (5.0, 3.4)
# The paper's own headline (arXiv 2312.06126, abstract): other hardware, other tasks.
PAPER = {"update_frame_hz": PAPER_UPDATE_FRAME_HZ, "sampling_hz": PAPER_SAMPLING_HZ}
PAPER_TITLE = "Spreeze, as its paper states"
PAPER_NOTE = (
    "The paper (arXiv 2312.06126) states up to these rates and 73% less training time than other frameworks, on a "
    "desktop with a 12-core CPU and one GPU, on PyBullet tasks: other hardware and other tasks than here."
)
CLOCK_NOTE = (
    "Seconds from the start of the command, imports and compilation included, to the first evaluation (mean of 10 "
    "episodes) at the target. Spreeze evaluates in a process beside the training, on the same cores: nothing is "
    "subtracted. The peers stop training to evaluate: the time of their evaluations is subtracted."
)


@dataclass(frozen=True)
class Median:
    """A median over seeds; a bound where runs that did not get there decide it."""

    seconds: float
    is_bound: bool

    def __str__(self) -> str:
        return f"{'> ' if self.is_bound else ''}{self.seconds:.1f}"


def table(content: dict[str, Any]) -> str:
    """Return the Markdown table of a result."""
    groups = by_system(content)
    if content["benchmark"] == THROUGHPUT:
        return throughput_table(groups, content["machine"], content["settings"]["env"])
    if content["settings"]["target_return"] is None:
        return curves_table(groups, content["settings"])
    return solve_table(groups, content["settings"])


def by_system(content: dict[str, Any]) -> dict[str, list[Run]]:
    """Return the runs of each system, in the order in which systems were named."""
    runs = [Run.of(kept) for kept in content["runs"]]
    groups = {name: [run for run in runs if run.system == name] for name in content["settings"]["systems"]}
    return {name: group for name, group in groups.items() if group}


def own_name(groups: dict[str, list[Run]]) -> str | None:
    """Return which system is ours: the first of the variants of Spreeze that has figures."""
    return next((name for name, runs in groups.items() if is_spreeze(name) and figures_of(runs)), None)


def figures_of(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.failed is None]


def failure_row(runs: Sequence[Run], columns: int) -> str:
    """Return the row of a system that has no figures at all."""
    reason = str(runs[-1].failed).replace("|", "/")
    return f"| {runs[-1].title} | failed: {reason} |{' - |' * (columns - 2)}"


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def title_of(runs: Sequence[Run]) -> str:
    failures = sum(run.failed is not None for run in runs)
    return f"{runs[0].title} ({failures} of {len(runs)} failed)" if failures else runs[0].title


def percent_text(percents: Sequence[float | None]) -> str:
    known = [percent for percent in percents if percent is not None]
    return f"{statistics.median(known):.0f}%" if known else "-"


# --- time to a return ------------------------------------------------------------------------------------------


def solve_table(groups: dict[str, list[Run]], settings: dict[str, Any]) -> str:
    """Return a row for each system; runs that missed the target count as the limit and show as "> limit"."""
    heads = ("system", "median s", "each seed", "env steps", "updates", "CPU", "GPU", "times ours")
    rows = [row(*heads), "|---" * len(heads) + "|"]
    own = own_name(groups)
    own_median = None if own is None else median_time(figures_of(groups[own]), limit_of(own, settings))
    for name, runs in groups.items():
        measured, limit_s = figures_of(runs), limit_of(name, settings)
        if not measured:
            rows.append(failure_row(runs, len(heads)))
            continue
        median = median_time(measured, limit_s)
        rows.append(
            row(
                title_of(runs),
                f"**{median}**" if name == own else str(median),
                ", ".join(time_text(run.time_to_target_s, limit_s) for run in measured),
                f"{statistics.median(run.env_steps for run in measured):,.0f}",
                f"{statistics.median(run.updates for run in measured):,.0f}",
                percent_text([run.cpu_percent for run in measured]),
                percent_text([run.gpu_percent for run in measured]),
                ratio_text(median, own_median),
            )
        )
    return "\n".join(rows)


def median_time(runs: Sequence[Run], limit_s: float) -> Median:
    """Return the median time to the target."""
    return median_of([run.time_to_target_s for run in runs], limit_s)


def median_of(times: Sequence[float | None], limit_s: float) -> Median:
    """Return the median of times, of which None is one that is only known to be longer than the limit."""
    ordered = sorted((limit_s if at_s is None else at_s, at_s is None) for at_s in times)
    # Of an even number the median is the mean of the middle two: a bound as soon as the later one is.
    return Median(statistics.median(seconds for seconds, _ in ordered), ordered[len(ordered) // 2][1])


def time_text(at_s: float | None, limit_s: float) -> str:
    return f"> {limit_s:.0f}" if at_s is None else f"{at_s:.1f}"


def ratio_text(median: Median, own: Median | None) -> str:
    """Return how many times ours a median is."""
    if own is None or (median.is_bound and own.is_bound):
        return "-"  # nothing to divide by, or two bounds, whose ratio says nothing
    sign = "> " if median.is_bound else "< " if own.is_bound else ""
    return f"{sign}{median.seconds / own.seconds:.2f}"


# --- learning curves -------------------------------------------------------------------------------------------


def curves_table(groups: dict[str, list[Run]], settings: dict[str, Any]) -> str:
    """Return the return of each system at the end, and when it had that of the best peer first."""
    goal = best_peer(groups)
    heads = ["system", "seconds", "return then", "env steps", "updates", "CPU", "GPU"]
    if goal is not None:
        heads += [f"s to {goal.final:,.0f}", "times ours"]
    rows = [row(*heads), "|---" * len(heads) + "|"]
    own = own_name(groups)
    own_median = None
    if own is not None and goal is not None:
        own_median = time_to(figures_of(groups[own]), goal.final, limit_of(own, settings))
    for name, runs in groups.items():
        measured, limit_s = [run for run in figures_of(runs) if run.evaluations], limit_of(name, settings)
        if not measured:
            rows.append(failure_row(runs, len(heads)))
            continue
        cells = [
            title_of(runs),
            f"{limit_s:.0f}",
            span([final_return(run) for run in measured], ",.0f"),
            f"{statistics.median(run.env_steps for run in measured):,.0f}",
            f"{statistics.median(run.updates for run in measured):,.0f}",
            percent_text([run.cpu_percent for run in measured]),
            percent_text([run.gpu_percent for run in measured]),
        ]
        if goal is not None:
            median = time_to(measured, goal.final, limit_s)
            cells += [str(median), ratio_text(median, own_median)]
        rows.append(row(*cells))
    if goal is None or own_median is None:
        return "\n".join(rows)
    return "\n".join([*rows, "", sooner_sentence(goal, own_median, limit_of(goal.system, settings))])


def final_return(run: Run) -> float:
    """Return what a run had learnt at its end."""
    return statistics.mean(mean_return for _, _, mean_return in run.evaluations[-FINAL_EVALUATIONS:])


class Goal(NamedTuple):
    """The return that the best peer has at its end: the median over its runs."""

    system: str
    title: str
    final: float


def best_peer(groups: dict[str, list[Run]]) -> Goal | None:
    """Return which peer had the highest return at the end; None without a peer."""
    goals = []
    for name, runs in groups.items():
        measured = [run for run in figures_of(runs) if run.evaluations]
        if measured and not is_spreeze(name):
            goals.append(Goal(name, runs[0].title, statistics.median(final_return(run) for run in measured)))
    return max(goals, key=lambda goal: goal.final, default=None)


def time_to(runs: Sequence[Run], goal: float, limit_s: float) -> Median:
    """Return the median time to the first evaluation at a return."""
    firsts = [next((at_s for at_s, _, mean in run.evaluations if mean >= goal), None) for run in runs]
    return median_of(firsts, limit_s)


def sooner_sentence(goal: Goal, own: Median, limit_s: float) -> str:
    has = f"{goal.title} has {goal.final:,.0f} after {limit_s:.0f} s"
    if own.is_bound:
        return f"{has}; Spreeze does not have it in the time it had."
    return f"{has}; Spreeze has it after {own.seconds:.1f} s: {limit_s / own.seconds:.1f} times sooner."


# --- throughput ------------------------------------------------------------------------------------------------


def throughput_table(groups: dict[str, list[Run]], machine: dict[str, Any], env: str) -> str:
    """Return medians over the repeats with the lowest and the highest, and how many times theirs ours are."""
    heads = (
        "system",
        "updates/s",
        "update frames/s",
        "env steps/s",
        "CPU",
        "GPU",
        "ours / theirs: update frames",
        "env steps",
    )
    rows = [row(*heads), "|---" * len(heads) + "|"]
    own = own_name(groups)
    for runs in groups.values():
        measured = figures_of(runs)
        if not measured:
            rows.append(failure_row(runs, len(heads)))
            continue
        ratios = [
            "-" if own is None else f"{rate(groups[own], name) / rate(runs, name):.2f}"
            for name in ("update_frame_hz", "sampling_hz")
        ]
        rows.append(
            row(
                title_of(runs),
                *(span([getattr(run, name) for run in measured], ",.0f") for name in RATES),
                percent_text([run.cpu_percent for run in measured]),
                percent_text([run.gpu_percent for run in measured]),
                *ratios,
            )
        )
    if machine["gpus"]:
        ours = [
            "-" if own is None else f"{rate(groups[own], name) / PAPER[name]:.1f}"
            for name in ("update_frame_hz", "sampling_hz")
        ]
        stated = [f"{PAPER[name]:,}" for name in ("update_frame_hz", "sampling_hz")]
        rows.append(row(PAPER_TITLE, "-", *stated, "-", "-", *ours))
        rows += ["", f"{PAPER_NOTE} All other rows: {machine['cores']} cores, {', '.join(machine['gpus'])}, {env}."]
    return "\n".join(rows)


RATES = ("update_hz", "update_frame_hz", "sampling_hz")


def rate(runs: Sequence[Run], name: str) -> float:
    return statistics.median(getattr(run, name) for run in figures_of(runs))


# --- what should be measured again -----------------------------------------------------------------------------


def disturbed_note(content: dict[str, Any]) -> str:
    """Say how many runs shared the cores with others; nothing if none did."""
    runs = figures_of([Run.of(kept) for kept in content["runs"]])
    disturbed = sum(run.cpu is not None and run.cpu.others_cores > DISTURBED_CORES for run in runs)
    if not disturbed:
        return ""
    return f"{disturbed} of {len(runs)} runs shared the CPU with others: measure again on an idle machine."


# --- the picture -----------------------------------------------------------------------------------------------


def picture(content: dict[str, Any], path: Path) -> None:
    """Draw return against wall time: median and range over seeds, a colour for each system."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings = content["settings"]
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        # Without pyplot: no window system is needed, and no state is left behind.
        figure = Figure(figsize=PICTURE_INCHES, layout="constrained")
        axes = figure.add_subplot()
        if settings["target_return"] is not None:
            axes.axhline(settings["target_return"], linestyle="--", linewidth=0.8, color="#888888")
        earliest_s = math.inf
        for place, runs in enumerate(by_system(content).values()):
            earliest_s = min(earliest_s, draw_system(axes, runs, settings["max_seconds"], place))
        axes.set_xscale("log")  # ours and the slowest are an order of magnitude apart
        axes.set_xlim(earliest_s if math.isfinite(earliest_s) else 1.0, settings["max_seconds"])
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("{x:g}")
        axes.tick_params(axis="x", which="minor", labelsize=5)
        axes.set_xlabel("wall time from the start of the command (s)")
        axes.set_ylabel("evaluation return")
        axes.set_title(picture_title(content))
        axes.grid(True)
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
        figure.savefig(path, dpi=DOTS_AN_INCH)


def draw_system(axes: Any, runs: Sequence[Run], limit_s: float, place: int) -> float:
    """Draw a system's curve, and return where it begins."""
    colour, line = COLOURS[place % len(COLOURS)], LINES[place // len(COLOURS) % len(LINES)]
    measured = [run for run in figures_of(runs) if run.evaluations]
    label = f"{runs[0].title} ({len(measured)} run{'' if len(measured) == 1 else 's'})"
    series = [[(at_s, mean) for at_s, _, mean in run.evaluations if at_s <= limit_s] for run in measured]
    curve = join_runs([until(own, run.time_to_target_s) for own, run in zip(series, measured, strict=True)], "range")
    if curve is None:
        axes.plot([], [], color=colour, linestyle=line, label=label)  # in the legend all the same
        return math.inf
    axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)
    axes.plot(curve.x, curve.median, color=colour, linestyle=line, label=label)
    return float(curve.x[0])


def picture_title(content: dict[str, Any]) -> str:
    machine, settings = content["machine"], content["settings"]
    gpus = ", ".join(machine["gpus"]) or "no GPU"
    return f"{settings['env']}, {machine['cores']} cores, {gpus}: median and range"
