"""`spreeze plot`: learning curves of finished or running runs, drawn for a paper from their folders.

In: run folders. Out: a picture of return against wall time and environment steps, with one curve per config: median
and quartiles over its runs. The last point of each curve is printed too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from spreeze.errors import ConfigError, RunFolderError
from spreeze.host.output_files import require_writable
from spreeze.runs.folder_check import require_plain_file
from spreeze.runs.journal_reader import RunReader
from spreeze.runs.learning_curves import Curve, Series, join_runs, until
from spreeze.runs.run_groups import as_asked, group_runs
from spreeze.views.picture_formats import require_drawable

Axis = Literal["wall_s", "env_steps"]
AXES: dict[Literal["wall_s", "env_steps", "both"], tuple[Axis, ...]] = {
    "wall_s": ("wall_s",),
    "env_steps": ("env_steps",),
    "both": ("wall_s", "env_steps"),
}

PANEL_INCHES = (3.3, 2.3)  # a column of most papers is 3.3 inches wide
PANELS_PER_ROW = 3
LEGEND_LINE_INCHES = 0.22
TITLE_INCHES = 0.25
DOTS_PER_INCH = 300
LETTERS_PER_INCH = 14  # of the legend; a label that is wider than a panel has its own line

# Okabe and Ito's colours, which colour-blind readers can tell apart, without the yellow that is too light on paper.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333")
LINES = ("-", "--", ":", "-.")  # for more curves than colours
STYLE = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.3,
    "pdf.fonttype": 42,  # TrueType: publishers refuse matplotlib's default
}


@dataclass(frozen=True)
class DrawnRun:
    """The data of one run that a picture needs."""

    name: str
    config: dict[str, Any]
    """As the user gave it, with "auto" where the run chose."""
    series: dict[Axis, Series]
    has_reached_target: bool

    @property
    def env(self) -> str:
        """The environment it was trained on."""
        return str(self.config.get("env"))


@dataclass(frozen=True)
class DrawnGroup:
    """The runs of one curve."""

    env: str
    label: str
    runs: tuple[DrawnRun, ...]

    def curve(self, axis: Axis) -> Curve | None:
        """Join the runs. One that ended at its target keeps its last return; any other counts up to its end."""
        series = [run.series[axis] for run in self.runs]
        return join_runs(series, "quartiles", [run.has_reached_target for run in self.runs])


def plot_runs(paths: Sequence[Path], out: Path, axes: Sequence[Axis], title: str | None) -> None:
    """Draw runs to a file, and print the last point of each curve."""
    if not paths:
        raise ConfigError("RUNS is missing: spreeze plot runs/A runs/B --out curves.png")
    require_drawable(out, "--out")
    # One folder that is named twice is one run.
    runs = [read_run(path) for path in {path.resolve(): path for path in paths}.values()]
    require_writable(out, "--out")
    groups = group_drawn(runs)
    for group in groups:
        if any(group.curve(axis) is None for axis in axes):
            names = ", ".join(run.name for run in group.runs)
            raise ConfigError(f"{names}: one of them ended before another was first evaluated; leave one out")
    draw(groups, axes, out, title)
    for line in describe(groups, axes[0]):
        print(line)
    print(f"written to {out}")


def read_run(path: Path) -> DrawnRun:
    """Read a run folder. Raises RunFolderError if there is nothing to draw in it."""
    for name in ("config.json", "summary.json", "evaluations.jsonl", "events.jsonl"):
        require_plain_file(path / name)
    reader = RunReader(path)
    # One refresh reads a bounded part of a journal: repeat until there are no new lines.
    seen = -1
    while (seen_now := _lines_seen(reader)) != seen:
        seen = seen_now
        reader.refresh()
    if not path.is_dir():
        raise RunFolderError(f"there is no run folder '{path}': name folders such as runs/Pendulum-v1-sac-...")
    if not reader.config:
        raise RunFolderError(f"'{path}' is not a run folder: there is no {path / 'config.json'} that can be read")
    series: dict[Axis, Series] = {axis: reader.evaluations.series(axis, "mean_return") for axis in AXES["both"]}
    if not all(series.values()):
        raise RunFolderError(f"'{path}' has no evaluation to draw: wait for its first one, or leave it out")
    has_reached_target = reader.summary.get("stop_reason") == "target_return"
    reached_s = reader.summary.get("time_to_target_s")
    if has_reached_target and isinstance(reached_s, float | int):
        evaluations = len(until(series["wall_s"], reached_s))
        series = {axis: points[:evaluations] for axis, points in series.items()}
    return DrawnRun(reader.name, as_asked(reader.config, reader.events.all()), series, has_reached_target)


def _return_text(number: float) -> str:
    return f"{number:,.1f}" if abs(number) < 1e15 else f"{number:.3g}"


def _lines_seen(reader: RunReader) -> int:
    return len(reader.metrics) + len(reader.evaluations) + len(reader.events) + reader.damaged_lines


def group_drawn(runs: Sequence[DrawnRun]) -> list[DrawnGroup]:
    """Group runs into curves, ordered by environment. A label names what differs within its panel."""
    groups = []
    for env in dict.fromkeys(run.env for run in runs):
        own = [run for run in runs if run.env == env]
        for group in group_runs([run.config for run in own], unnamed=("env",)):
            groups.append(DrawnGroup(env, group.label, tuple(own[index] for index in group.members)))
    return groups


def describe(groups: Sequence[DrawnGroup], axis: Axis) -> list[str]:
    """Describe the last point of each curve, and name the run that cut it short."""
    lines = []
    for group in groups:
        curve = group.curve(axis)
        if curve is None:
            continue
        end = f"{curve.x[-1]:,.1f} s" if axis == "wall_s" else f"{curve.x[-1]:,.0f} env steps"
        lines.append(
            f"{group.env}  {_caption(group.label, [group])}: median return {_return_text(curve.median[-1])} "
            f"(quartiles {_return_text(curve.low[-1])} to {_return_text(curve.high[-1])}) at {end}"
        )
        ends = {run.name: run.series[axis][-1][0] for run in group.runs}
        if max(ends.values()) > 1.2 * float(
            curve.x[-1]
        ):  # smaller differences only come from the times of evaluations
            shortest = min(
                (run.name for run in group.runs if not run.has_reached_target), key=lambda name: ends[name]
            )
            lines.append(f"  it ends where {shortest} ends: without that run it would be longer")
    return lines


# --- the picture -----------------------------------------------------------------------------------------------


def draw(groups: Sequence[DrawnGroup], axes: Sequence[Axis], out: Path, title: str | None) -> None:
    """Draw a row of panels for each environment, or panels side by side where each environment has one."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    envs = list(dict.fromkeys(group.env for group in groups))
    panels = [(env, axis) for env in envs for axis in axes]
    columns = len(axes) if len(axes) > 1 else min(PANELS_PER_ROW, len(panels))
    rows = -(-len(panels) // columns)
    # The same label has the same look in all panels.
    captions = {group.label: _caption(group.label, groups) for group in groups}
    has_title = title is not None or len(envs) == 1
    legend_columns = _legend_columns(list(captions.values()), columns * PANEL_INCHES[0])
    legend_lines = -(-len(captions) // legend_columns)
    height = rows * PANEL_INCHES[1] + legend_lines * LEGEND_LINE_INCHES + has_title * TITLE_INCHES
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        # Without pyplot: no window system is needed, and no global state changes.
        figure = Figure(figsize=(columns * PANEL_INCHES[0], height), layout="constrained")
        lines: dict[str, Any] = {}
        for place, (env, axis) in enumerate(panels):
            panel = figure.add_subplot(rows, columns, place + 1)
            own = [group for group in groups if group.env == env]
            lines.update(_draw_panel(panel, own, axis, list(captions)))
            if len(envs) > 1:
                panel.set_title(env)
            if place % columns == 0 or len(axes) == 1:
                panel.set_ylabel("evaluation return")
        if has_title:
            figure.suptitle(title or envs[0], fontsize=9)
        figure.legend(
            [lines[label] for label in captions],
            list(captions.values()),
            loc="outside lower center",
            ncols=legend_columns,
            frameon=False,
            handlelength=1.8,
            columnspacing=1.4,
        )
        figure.savefig(out, dpi=DOTS_PER_INCH)


def _draw_panel(panel: Any, groups: Sequence[DrawnGroup], axis: Axis, labels: Sequence[str]) -> dict[str, Any]:
    """Draw the curves of one environment; return their lines by label. labels: those of all panels."""
    from matplotlib.ticker import MaxNLocator

    curves = [(group, curve) for group in groups if (curve := group.curve(axis)) is not None]
    unit, name = _unit(axis, max(float(curve.x[-1]) for _, curve in curves))
    lines = {}
    for group, curve in curves:
        place = labels.index(group.label)
        colour, line = COLOURS[place % len(COLOURS)], LINES[place // len(COLOURS) % len(LINES)]
        if len(group.runs) > 1:
            panel.fill_between(curve.x / unit, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)
        (lines[group.label],) = panel.plot(curve.x / unit, curve.median, color=colour, linestyle=line)
    panel.set_xlim(left=0)
    panel.set_xlabel(name)
    for scale in (panel.xaxis, panel.yaxis):
        scale.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
    panel.grid(True)
    return lines


def _caption(label: str, groups: Sequence[DrawnGroup]) -> str:
    """Return the label with its number of runs, unless that differs between panels."""
    counts = {len(group.runs) for group in groups if group.label == label}
    return label if len(counts) > 1 else f"{label} ({min(counts)} run{'' if counts == {1} else 's'})"


def _legend_columns(captions: Sequence[str], width_inches: float) -> int:
    longest_inches = 0.5 + max(map(len, captions)) / LETTERS_PER_INCH
    return max(1, min(len(captions), math.floor(width_inches / longest_inches)))


def _unit(axis: Axis, most: float) -> tuple[float, str]:
    """Return a divisor with which ticks have few digits, and the axis label for it."""
    units = {
        "wall_s": ((7200.0, 3600.0, "wall time (h)"), (600.0, 60.0, "wall time (min)"), (0.0, 1.0, "wall time (s)")),
        "env_steps": (
            (1e6, 1e6, "environment steps (millions)"),
            (1e4, 1e3, "environment steps (thousands)"),
            (0.0, 1.0, "environment steps"),
        ),
    }
    return next((unit, name) for at_least, unit, name in units[axis] if most >= at_least)
