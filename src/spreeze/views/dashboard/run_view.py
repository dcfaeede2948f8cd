"""What the page shows of one run at one moment. Made once after each refresh, whatever the number of pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from spreeze.runs.journal_reader import RunReader, State, read_object
from spreeze.views.dashboard import markup
from spreeze.views.dashboard.chart_data import Axis
from spreeze.views.dashboard.charts import Options, metric_chart, return_chart
from spreeze.views.dashboard.flow import Flow, describe_flow
from spreeze.views.dashboard.formatting import count, decimal, number, score, seconds, state_text

# Fields of metrics.jsonl on the second tab, with what they are called there.
LEARNING_FIELDS: Mapping[str, str] = {
    "critic_loss": "Critic loss",
    "actor_loss": "Actor loss",
    "q_mean": "Mean Q value",
    "entropy": "Entropy of the policy (nats)",
    "temperature": "Temperature",
    "temperature_loss": "Temperature loss",
}
MAX_SPARK = 60  # a minute


@dataclass(frozen=True)
class FigureKind:
    """A number at the top of the page."""

    field: str
    title: str
    unit: str
    write: Callable[[float | None], str]
    hint: str


FIGURES: tuple[FigureKind, ...] = (
    FigureKind("sampling_hz", "Sampling", "env steps/s", count, "sampling_hz: environment steps stored a second"),
    FigureKind("update_hz", "Updates", "updates/s", count, "update_hz: optimiser steps of the critics a second"),
    FigureKind(
        "update_frame_hz", "Update frames", "transitions/s", count, "update_frame_hz: updates a second x batch size"
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
    """A number with its course."""

    kind: FigureKind
    value: str
    spark: str


class RunView:
    """A run as it is now. What no page shows is not made."""

    def __init__(self, reader: RunReader, viewer: str) -> None:
        self._reader, self._viewer = reader, viewer
        self.state: State = reader.state
        self.chart = lru_cache(maxsize=None)(self._chart)  # once an axis, for all pages
        self.learning_chart = lru_cache(maxsize=None)(self._learning_chart)

    @property
    def goes_on(self) -> bool:
        """Whether more is to come."""
        return self.state in ("starting", "running")

    @property
    def has_ended(self) -> bool:
        """Whether there is nothing left to stop; a silent run may still hang."""
        return self.state in ("finished", "failed", "gone")

    @cached_property
    def state_text(self) -> str:
        """What has become of it."""
        return state_text(self.state, self._reader.summary, self._reader.failure)

    @cached_property
    def task(self) -> str:
        """What is trained, and how."""
        config = self._reader.config
        return " · ".join(str(config[name]) for name in ("env", "algo") if name in config) or "no config yet"

    @cached_property
    def wall_s(self) -> float | None:
        """How long it has run."""
        return number(self._reader.summary, "wall_s") or number(self._reader.metrics.newest, "wall_s")

    @cached_property
    def best(self) -> Mapping[str, Any] | None:
        """The best evaluation: of those that are kept, or as the evaluator has left it beside the best policy."""
        left = read_object(self._reader.path / "best" / "evaluation.json")
        lines = [line for line in (left, *self._reader.evaluations.all()) if number(line, "mean_return") is not None]
        return max(lines, key=lambda line: number(line, "mean_return") or 0.0, default=None)

    @cached_property
    def best_return(self) -> str:
        """The return of it."""
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
    def flow(self) -> Flow:
        """Who does what at the moment, and who waits."""
        reader = self._reader
        return describe_flow(
            list(reader.metrics.recent),
            reader.evaluations.newest,
            reader.config,
            goes_on=self.goes_on,
            viewer=self._viewer,
        )

    @cached_property
    def machine(self) -> str:
        """Cores, GPU, memory."""
        return markup.machine(self._reader.metrics.newest)

    @cached_property
    def progress(self) -> str:
        """What was reached."""
        return markup.progress(self._reader.summary, self._reader.metrics.newest, self.best)

    @cached_property
    def events(self) -> str:
        """What happened, newest first; choices of settings have a tab of their own, and who reads has the address."""
        unlisted = ("choice", "address")
        return markup.events([event for event in self._reader.events.all() if event.get("kind") not in unlisted])

    @cached_property
    def settings(self) -> str:
        """The config, and what was chosen."""
        choices = [event for event in self._reader.events.all() if event.get("kind") == "choice"]
        return markup.settings(self._reader.config, choices)

    @cached_property
    def damage(self) -> str:
        """What could not be read."""
        lines = self._reader.damaged_lines
        return f"{lines:,} damaged line{'' if lines == 1 else 's'} left out" if lines else ""

    def _chart(self, axis: Axis) -> Options:
        return return_chart(self._reader.evaluations, self._reader.metrics, axis)

    def _learning_chart(self, field: str) -> Options:
        return metric_chart(self._reader.metrics, field, LEARNING_FIELDS[field])
