"""The tab that compares runs: one chart, with median and spread over runs that differ only in their seed."""

from __future__ import annotations

from html import escape
from typing import cast

from nicegui import ui

from spreeze.runs.run_groups import as_asked, group_runs
from spreeze.views.dashboard.chart_data import Axis, spread
from spreeze.views.dashboard.charts import Curve, compare_chart
from spreeze.views.dashboard.elements import TOGGLE
from spreeze.views.dashboard.formatting import count, duration, score
from spreeze.views.dashboard.runs import Runs

# Distinguishable for colour-blind people (Okabe and Ito), darkened for contrast on white.
COLOURS = ("var(--accent)", "#d55e00", "#7b5fc9", "#b8860b", "#2e8b57", "#c2477f", "#4a6fa5", "#8a8a8a")
MAX_SELECTED = 40
PRESELECTED = 12


class CompareTab:
    """The comparison on one page."""

    def __init__(self, runs: Runs, run_id: str) -> None:
        self._runs = runs
        self._axis: Axis = "wall_s"
        task = runs.entry(run_id).detail.partition(" ")[
            0
        ]  # the same environment: returns of others are not comparable
        alike = [entry.run_id for entry in runs.entries if entry.detail.partition(" ")[0] == task]
        self.selected: list[str] = alike[:PRESELECTED]
        self._shown: tuple[object, ...] = ()

    def build(self) -> None:
        """Make the tab's elements."""
        with ui.element("section").classes("card card-full").props('aria-label="Comparison"'):
            with ui.element("div").classes("card-head"):
                ui.html("<h2>Return of evaluations</h2>", sanitize=False)
                axis = ui.toggle(
                    {"wall_s": "wall time", "env_steps": "env steps"},
                    value=self._axis,
                    on_change=lambda event: self._choose_axis(event.value),
                )
                axis.props(f'{TOGGLE} aria-label="x axis of the comparison"').classes("axis")
            choice = ui.select(
                {entry.run_id: entry.name for entry in self._runs.entries},
                value=self.selected,
                multiple=True,
                on_change=lambda event: self._choose(event.value),
            )
            choice.props(
                f'use-chips dense outlined options-dense label="runs to compare" max-values={MAX_SELECTED} '
                "popup-content-class=run-list"
            ).classes("compare-choice")
            self._chart = ui.echart(dict(compare_chart([], self._axis)), renderer="svg").classes("chart chart-large")
            self._chart.props('role=img aria-label="returns of several runs"')
            self._table = ui.html("", sanitize=False).classes("compare-table")

    async def _choose(self, selected: list[str]) -> None:
        self.selected = list(selected)[:MAX_SELECTED]
        async with self._runs.fresh(self.selected):
            self.show()

    async def _choose_axis(self, axis: str) -> None:
        self._axis = cast(Axis, axis)
        async with self._runs.fresh():
            self.show()

    def show(self) -> None:
        """Draw the selected runs, if anything has changed."""
        shown = (self._axis, *(self._runs.run(run_id).view for run_id in self.selected))
        if shown == self._shown:
            return
        self._shown = shown
        curves, rows = self._curves()
        self._chart.options.clear()
        self._chart.options.update(compare_chart(curves, self._axis))
        self._chart.update()
        head = "".join(
            f'<th scope="col">{title}</th>'
            for title in ("", "settings", "runs", "last return", "middle half", "up to")
        )
        self._table.set_content(f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>")

    def _curves(self) -> tuple[list[Curve], list[str]]:
        curves: list[Curve] = []
        rows: list[str] = []
        for name, group in self._groups():
            colour = COLOURS[len(rows) % len(COLOURS)]
            lines = [self._runs.run(run_id).reader.evaluations.series(self._axis, "mean_return") for run_id in group]
            drawn = spread(lines)
            if drawn is not None:
                curves.append(Curve(name, colour, drawn))
                last_x, last = drawn.median[-1]
                reached = duration(last_x) if self._axis == "wall_s" else f"{count(last_x)} env steps"
                between = f"{score(drawn.low[-1][1])} … {score(drawn.high[-1][1])}" if len(group) > 1 else "one run"
                cells = (name, f"{len(group)}", score(last), between, reached)
            else:
                cells = (name, f"{len(group)}", "no evaluation yet", "", "")
            rows.append(
                f'<tr><td><i style="background:{colour}"></i></td>'
                + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
                + "</tr>"
            )
        return curves, rows

    def _groups(self) -> list[tuple[str, list[str]]]:
        """Return the groups of runs that are repetitions of each other, each with a name of how it differs."""
        # A run without a config, which is starting or damaged, is a group of its own.
        configs = [self._runs.config(run_id) or {"env": self._runs.entry(run_id).name} for run_id in self.selected]
        events = [self._runs.run(run_id).reader.events.all() for run_id in self.selected]
        groups = group_runs([as_asked(*pair) for pair in zip(configs, events, strict=True)], unnamed=("env",))
        return [
            (
                f"{configs[group.members[0]].get('env')} · {group.label}"[:80],
                [self.selected[i] for i in group.members],
            )
            for group in groups
        ]
