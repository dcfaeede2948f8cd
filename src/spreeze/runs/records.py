"""The records of a run's journals: measurements and evaluations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from spreeze.channels.metrics import MAX_FIGURES
from spreeze.channels.rejected_rows import is_usable

MAX_NAME = 64


@dataclass(frozen=True)
class Lateness:
    """How long after its deadline a step has started."""

    p50_s: float
    p99_s: float
    max_s: float


@dataclass(frozen=True)
class Punctuality:
    """How a run with --realtime keeps its period. The object `realtime` in metrics.jsonl and summary.json."""

    steps: int
    """Steps that had a deadline: all but the first of each episode, since the start of the session."""
    late_steps: int
    """Those that started more than 2 ms after it."""
    last_second: Lateness | None
    """Of the steps since the line before; None if there was none."""
    run: Lateness | None
    """Of all steps."""
    waits_for_person: bool = False
    """Whether the environment waits for a person, before a reset."""


@dataclass(frozen=True)
class EvaluationUnderWay:
    """An evaluation of more than a second, before it is complete. The object `evaluating` in metrics.jsonl."""

    version: int
    played: int
    """Episodes that have ended."""
    episodes: int
    """Those that it has at most."""
    mean_return: float | None
    """Of those that have ended; None without any, or where one has a return that cannot be used."""


@dataclass(frozen=True)
class MachineFigures:
    """Another machine of a run with --cluster."""

    name: str
    state: str
    """joining, at_work, away or refused."""
    samplers: int
    rows_hz: float
    """Rows that have arrived, per second."""
    bytes_hz: float
    policy_lag_s: float | None
    """Age of the oldest policy that one of its samplers acts with, by the clock of the head alone: the time that the
    report took is part of it."""
    round_trip_s: float
    """What a question and its answer took, the last time."""
    waits_for: str | None
    """What holds its rows up for a fifth of the time or more: the link, or the learner; None if nothing does."""
    rows_sampled: int
    """Rows that its samplers have written, as far as it has reported them, since the start of the session."""
    rows_arrived: int
    rows_lost: int
    """Those that were sampled and will not arrive: the machine died, or was cut off, before it had sent them."""
    rows_repeated: int
    """Those that arrived again after an error, and were left out."""


@dataclass(frozen=True)
class ClusterFigures:
    """All other machines. The object `cluster` in metrics.jsonl and summary.json."""

    rows_sampled: int
    rows_arrived: int
    rows_lost: int
    rows_repeated: int
    machines: tuple[MachineFigures, ...]


@dataclass(frozen=True)
class Measurement:
    """The state of a run at one moment, with rates over the window before it. The fields of metrics.jsonl."""

    wall_s: float
    env_steps: int
    updates: int
    episodes: int
    sampling_hz: float
    update_hz: float
    update_frame_hz: float
    batch_size: int
    num_samplers: int
    updates_per_step: float
    """Updates for each environment step after the warm-up, since the start."""
    policy_lag_s: float | None
    """Mean age of the policies that samplers act with."""
    replay_rows: int
    ring_wait_s: float
    """Seconds that samplers have waited for room in their channels, summed over samplers, since the start."""
    ratio_wait_s: float
    """Seconds that samplers have waited for the learner because of min_updates_per_step, likewise."""
    learner_wait_s: float
    """Seconds that the learner has waited for the warm-up, or because of max_updates_per_step."""
    ingest_s: float
    """Seconds that the learner's host has spent on taking transitions out of the channels, since the start."""
    publish_s: float
    """Seconds it has spent on publishing weights, likewise."""
    report_s: float
    """Seconds it has spent on reading figures, likewise."""
    actor_updates: int
    """Optimiser steps of the actor; other than those of the critics only where the learner is split."""
    actor_lag_updates: int
    """Updates of the critics that the actor's side does not have yet; 0 where the learner is not split."""
    critic_lag_updates: int
    """Updates of the actor that the critics' side does not have yet, likewise."""
    exchange_s: float
    """Seconds that the critics' side has spent on exchanging parameters, since the start."""
    actor_exchange_s: float
    """Seconds that the actor's side has spent on it, likewise."""
    exchanged_bytes: int
    """Bytes exchanged between the two sides."""
    train_return: float | None
    """Mean return of the training episodes that ended in the last window in which any did."""
    cpu_percent: float
    gpu_percent: float | None
    rss_bytes: int
    gpu_bytes: int | None
    rows_rejected: int
    ring_fill: float | None
    """Mean fill of the samplers' channels, 0 to 1; None where it is not known (a queue)."""
    cpu_cores: tuple[float, ...]
    """How busy each core that the run may use was, with all programs, in percent."""
    cpu_by_role: dict[str, float]
    """Number of cores that the processes of each role used."""
    realtime: Punctuality | None = None
    """With --realtime."""
    evaluating: EvaluationUnderWay | None = None
    """The evaluation that the evaluator is at, if it takes long."""
    cluster: ClusterFigures | None = None
    """With --cluster."""
    figures: dict[str, float | None] = field(default_factory=dict)
    """What the algorithm reports, by its names. In metrics.jsonl they stand next to the fields above."""

    def as_line(self) -> dict[str, Any]:
        """Return the line of metrics.jsonl."""
        line = asdict(self)
        figures: dict[str, float | None] = line.pop("figures")
        return line | figures


MEASURED = frozenset(field.name for field in fields(Measurement)) - {"figures"}
"""The names in a line of metrics.jsonl that no algorithm may have for a figure."""


def figures_in(line: Mapping[str, Any]) -> list[str]:
    """Return the names of the algorithm's figures in a line of metrics.jsonl, in its order."""
    return [name for name, value in line.items() if _is_figure(name, value)][:MAX_FIGURES]


def _is_figure(name: str, value: object) -> bool:
    if name in MEASURED or not name.isidentifier() or not len(name) <= MAX_NAME:
        return False  # the file may be a stranger's
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


@dataclass(frozen=True)
class Evaluation:
    """The score of one version of the policy. The fields of evaluations.jsonl."""

    wall_s: float
    env_steps: int
    updates: int
    version: int
    mean_return: float
    std_return: float
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    source: Literal["evaluator", "training"] = "evaluator"
    """Whose episodes they are; training: the last few that a sampler has ended, with exploration."""

    @classmethod
    def of_message(cls, fields: Mapping[str, Any]) -> Evaluation:
        """Return the evaluation that a message holds, with NaN for each number that was not finite."""
        floats = {name: _or_nan(fields[name]) for name in ("wall_s", "mean_return", "std_return")}
        tuples = {"returns": tuple(map(_or_nan, fields["returns"])), "lengths": tuple(fields["lengths"])}
        return cls(**{**fields, **floats, **tuples})

    @property
    def counts(self) -> bool:
        """Whether it is a result: returns that are not finite, or beyond all sense, are none."""
        return math.isfinite(self.mean_return) and math.isfinite(self.std_return) and not self.unusable_episodes

    @property
    def unusable_episodes(self) -> int:
        """How many of its episodes have a return that cannot be used."""
        return sum(not is_usable(each) for each in self.returns)


def _or_nan(number: float | None) -> float:
    return math.nan if number is None else number
