"""What the page shows of one run at one moment. Made once per refresh, for all pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from spreeze.runs.journal_reader import RunReader, State, read_object
from spreeze.runs.records import figures_in
from spreeze.views.amounts import number
from spreeze.views.dashboard import markup
from spreeze.views.dashboard.chart_data import Axis
from spreeze.views.dashboard.charts import Options, metric_chart, return_chart
from spreeze.views.dashboard.flow import Flow, describe_flow
from spreeze.views.dashboard.formatting import count, decimal, score, seconds, state_text, under_way_text

MAX_SPARK = 60  # one minute


@dataclass(frozen=True)
class FigureKind:
    """A number at the top of the page."""

    field: str
    title: str
    unit: str
    write: Callable[[float | None], str]
    hint: str


FIGURES: tuple[FigureKind, ...] = (
    FigureKind("sampling_hz", "Sampling", "env steps/s", count, "sampling_hz: environment steps stored per second"),
    FigureKind("update_hz", "Updates", "updates/s", count, "update_hz: optimiser steps of the critics per second"),
    FigureKind(
        "update_frame_hz", "Update frames", "transitions/s", count, "update_frame_hz: updates per second x batch size"
    ),
    FigureKind(
        "updates_per_step",
        "Ratio",
        "updates/env step",
        lambda value: decimal(value, 3),
        "updates_per_step: updates for each environment step after the warm-up, since the start",
    ),
    FigureKind(
        "policy_lag_s",
        "Policy lag",
        "age of policies",
        seconds,
        "policy_lag_s: mean age of the policies samplers act with",
    ),
)


@dataclass(frozen=True)
class Figure:
    """A number with its recent values."""

    kind: FigureKind
    value: str
    spark: str


class RunView:
    """A run as it is now. Parts are made when a page shows them."""

    def __init__(self, reader: RunReader, viewer: str) -> None:
        self._reader, self._viewer = reader, viewer
        self.state: State = reader.state
        self.chart = lru_cache(maxsize=None)(self._chart)  # once per axis, for all pages
        self.learning_chart = lru_cache(maxsize=None)(self._learning_chart)

    @property
    def is_running(self) -> bool:
        """Whether it is starting or running."""
        return self.state in ("starting", "running")

    @property
    def has_ended(self) -> bool:
        """Whether there is nothing left to stop. A silent run may hang, and can be stopped."""
        return self.state in ("finished", "failed", "gone")

    @cached_property
    def state_text(self) -> str:
        """Its state or result, as text, and how far an evaluation is that takes long."""
        text = state_text(self.state, self._reader.summary, self._reader.failure)
        newest = self._reader.metrics.newest
        under_way = under_way_text((newest or {}).get("evaluating")) if self.state == "running" else ""
        return f"{text} · {under_way}" if under_way else text

    @cached_property
    def task(self) -> str:
        """What is trained, and how."""
        config = self._reader.config
        return " · ".join(str(config[name]) for name in ("env", "algo") if name in config) or "no config yet"

    @cached_property
    def wall_s(self) -> float | None:
        """Its wall time so far."""
        return number(self._reader.summary, "wall_s") or number(self._reader.metrics.newest, "wall_s")

    @cached_property
    def best(self) -> Mapping[str, Any] | None:
        """The best evaluation: of those that were read, or the one stored with the best policy."""
        stored = read_object(self._reader.path / "best" / "evaluation.json", self._reader.path)
        lines = [
            line for line in (stored, *self._reader.evaluations.all()) if number(line, "mean_return") is not None
        ]
        return max(lines, key=lambda line: number(line, "mean_return") or 0.0, default=None)

    @cached_property
    def best_return(self) -> str:
        """Its return, as text."""
        reached = number(self._reader.summary, "best_return")
        return score(number(self.best, "mean_return") if reached is None else reached)

    @cached_property
    def figures(self) -> tuple[Figure, ...]:
        """The numbers at the top."""
        newest = self._reader.metrics.newest
        recent = list(self._reader.metrics.recent)[-MAX_SPARK:]
        return tuple(
            Figure(
                kind,
                kind.write(number(newest, kind.field)),
                markup.sparkline([y for line in recent if (y := number(line, kind.field)) is not None]),
            )
            for kind in FIGURES
        )

    @cached_property
    def algorithm_figures(self) -> tuple[str, ...]:
        """The names of what the algorithm reports: they differ from one algorithm to the next."""
        # The newest lines may be damaged: the one with the most figures is whole.
        return max((tuple(figures_in(line)) for line in reversed(self._reader.metrics.recent)), key=len, default=())

    @cached_property
    def flow(self) -> Flow:
        """What each process does now, and the bottleneck."""
        reader = self._reader
        return describe_flow(
            list(reader.metrics.recent),
            reader.evaluations.newest,
            reader.config,
            is_running=self.is_running,
            viewer=self._viewer,
        )

    @cached_property
    def machine(self) -> str:
        """Cores, GPU, memory, as HTML."""
        return markup.machine(self._reader.metrics.newest)

    @cached_property
    def progress(self) -> str:
        """What was reached, as HTML."""
        return markup.progress(self._reader.summary, self._reader.metrics.newest, self.best)

    @cached_property
    def events(self) -> str:
        """Events, newest first, without choices, which have their own tab, and without the page's own address."""
        unlisted = ("choice", "address")
        return markup.events([event for event in self._reader.events.all() if event.get("kind") not in unlisted])

    @cached_property
    def settings(self) -> str:
        """The config and the automatic choices, as HTML."""
        choices = [event for event in self._reader.events.all() if event.get("kind") == "choice"]
        return markup.settings(self._reader.config, choices)

    @cached_property
    def damage(self) -> str:
        """The number of lines that could not be read, as text."""
        lines = self._reader.damaged_lines
        return f"{lines:,} damaged line{'' if lines == 1 else 's'} left out" if lines else ""

    def _chart(self, axis: Axis) -> Options:
        return return_chart(self._reader.evaluations, self._reader.metrics, axis)

    def _learning_chart(self, figure: str) -> Options:
        return metric_chart(self._reader.metrics, figure, title_of(figure))


def title_of(figure: str) -> str:
    """Return what people read for an algorithm's figure: critic_loss becomes Critic loss."""
    text = figure.replace("_", " ").strip()
    return text[:1].upper() + text[1:]
