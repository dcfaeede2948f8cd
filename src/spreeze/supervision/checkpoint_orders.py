"""The supervisor's side of checkpoints: when one is made, and when one is valid.

In: reports of the learners that have saved themselves (`learning/checkpoint_writer.py`). Out: orders to them, and
manifests on the disk (`runs/checkpoint_format.py`), each written when every learner has reported its state.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spreeze.channels.control import ControlChannel
from spreeze.channels.metrics import MetricsChannel
from spreeze.config import LearnerRole
from spreeze.runs.checkpoint_counters import ACTOR, WORK, counters_of
from spreeze.runs.checkpoint_format import (
    Manifest,
    StateFile,
    discard,
    newest_number,
    oldest_row_needed,
    write_manifest,
)
from spreeze.runs.progress import SAMPLER_SUMS, Progress
from spreeze.runs.replay_log import Extent

FIRST_SHARE = 0.2  # of the interval, until the first: a run that dies young can be resumed too


@dataclass(frozen=True)
class ResumePoint:
    """Where a run stands that is resumed."""

    checkpoints: tuple[Manifest, ...]
    """Newest first: the run continues from the first."""
    progress: Progress
    without_replay: bool = False
    """Whether the rows that the checkpoints hold are left out."""

    @property
    def env_steps(self) -> int:
        """Transitions that its learner had stored."""
        return int(self.checkpoints[0].counters["rows_stored"])


class CheckpointOrders:
    """Orders checkpoints one at a time."""

    def __init__(
        self,
        folder: Path,
        interval_s: float,
        control: ControlChannel,
        reports_needed: int,
        kept: Sequence[Manifest] = (),
    ) -> None:
        """reports_needed: 2 where the learner is split, for example. kept: what an earlier session has left."""
        self._folder, self._interval_s, self._control = folder, interval_s, control
        self._reports_needed = reports_needed
        self._due_at: float | None = None
        self._ordered = self._number = 0
        self._ordered_at = 0.0
        self._arrived: dict[str, dict[str, Any]] = {}
        self.kept = tuple(kept)
        """Those that are valid, newest first."""

    @property
    def are_wanted(self) -> bool:
        """Whether there are any at all."""
        return self._interval_s > 0

    @property
    def is_under_way(self) -> bool:
        """Whether one was ordered that is not there yet."""
        return self._ordered > 0

    def turn(self, now: float) -> None:
        """Order one if it is time. To be called from the first update on: before it there is nothing to keep."""
        if self._due_at is None:
            self._due_at = now + FIRST_SHARE * self._interval_s
        if now >= self._due_at and not self.is_under_way:
            self._due_at = now + self._interval_s
            self.order()

    def order(self, at_end: bool = False) -> None:
        """Ask the learners to save themselves, now or when they end. A number is given once, whatever came of it."""
        if self.are_wanted:
            self._arrived.clear()
            with contextlib.suppress(OSError):  # no file handle is left: then the last number will do
                self._number = max(self._number, newest_number(self._folder))
            self._ordered = self._number = 1 + max(self._number, self.kept[0].number if self.kept else 0)
            self._ordered_at = time.monotonic()
            self._control.order_checkpoint(self._ordered, oldest_row_needed(self.kept), at_end)

    def forget_order(self) -> None:
        """Give up what was ordered of a learner that is gone."""
        self._ordered = 0
        self._control.order_checkpoint(0, 0)
        self._arrived.clear()

    def is_ordered(self, report: Mapping[str, Any]) -> bool:
        """Return whether a report is of the checkpoint that is awaited."""
        return bool(report["number"] == self._ordered)

    def drop_newest(self) -> bool:
        """Discard the newest, which turned out to be damaged; return whether there is another."""
        if self.kept:
            discard(self._folder, self.kept[0])
        self.kept = self.kept[1:]
        return bool(self.kept)

    def take(self, report: Mapping[str, Any], progress: Progress) -> float | None:
        """Take a learner's report; once all are there, return the seconds that the checkpoint took.

        Raises OSError where the disk refuses the manifest: the learners' files stay without a use.
        """
        if not self.is_ordered(report):
            return None  # of an order that was given up
        self._arrived[report["role"]] = dict(report)
        if len(self._arrived) < self._reports_needed:
            return None
        self._ordered = 0
        manifest = _manifest_of(self._arrived, progress)
        write_manifest(self._folder, manifest)
        self.kept = (manifest, *self.kept[:1])
        return time.monotonic() - self._ordered_at


def describe(manifest: Manifest) -> str:
    """Return what a checkpoint holds, in one line."""
    rows = sum(extent.rows for extent in manifest.extents)
    byte_count = rows * 4 * manifest.row_width + sum(state.byte_count for state in manifest.states)
    held = f"{rows:,} transitions" if rows else "no transitions"
    updates = int(manifest.counters.get("updates", 0))
    return f"checkpoint {manifest.number} after {updates:,} updates, with {held} ({byte_count / 1e6:,.1f} MB)"


def failure_of(report: Mapping[str, Any]) -> str | None:
    """Return why a learner could not save itself, if it could not."""
    failure = report.get("failure")
    return None if failure is None else f"a checkpoint could not be saved, the run continues: {failure}"


def restore_counters(metrics: MetricsChannel, manifest: Manifest, progress: Progress) -> None:
    """Set the counters of a run that is resumed, before its processes do: no line of its curves falls to 0."""
    records: dict[LearnerRole, Any] = {"all": metrics.learner, "actor": metrics.actor}
    for role, record in records.items():
        if role == "all" or ACTOR + WORK[0] in manifest.counters:
            for name, value in counters_of(manifest, role).items():
                record[name] = value
            record["steps_offset"] = manifest.counters["rows_consumed"]
    for name in SAMPLER_SUMS:
        metrics.samplers[name][0] = progress.samplers[name]


def _manifest_of(reports: Mapping[str, Mapping[str, Any]], progress: Progress) -> Manifest:
    first = reports["all"] if "all" in reports else reports["critic"]
    counters = dict(first["counters"])
    if "actor" in reports:
        counters |= {ACTOR + name: value for name, value in reports["actor"]["counters"].items()}
    return Manifest(
        number=int(first["number"]),
        states=tuple(StateFile(**report["state"]) for report in reports.values()),
        extents=tuple(Extent(*extent) for extent in first["extents"]),
        row_width=int(first["row_width"]),
        counters=counters,
        progress=progress.as_json(),
    )
