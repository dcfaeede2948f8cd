"""What a run records and shows: journals, trackers, and the display.

In: events, measurements and evaluations. Out: lines of the run folder's journals, and the same for whoever looks.
"""

from __future__ import annotations

import dataclasses
import time

from spreeze.channels.rejected_rows import MAX_MAGNITUDE
from spreeze.config import Config
from spreeze.runs.records import Evaluation, EvaluationUnderWay, Measurement
from spreeze.runs.run_folder import RunFolder
from spreeze.views.display import Display
from spreeze.views.trackers import Trackers, make_trackers


class RunLog:
    """Every figure and event of a run passes through here, once."""

    def __init__(self, folder: RunFolder, display: Display, started_at: float) -> None:
        """started_at: on the clock of `time.monotonic`; of a run that is resumed, as if it had never stopped."""
        self.folder, self.display, self.started_at = folder, display, started_at
        self._trackers = Trackers()
        self._warned: set[str] = set()
        self._has_left_out = False

    @property
    def wall_s(self) -> float:
        """Seconds since the command started."""
        return round(time.monotonic() - self.started_at, 3)

    def open_trackers(self, config: Config) -> None:
        """Send figures to TensorBoard and Weights & Biases too, where that is wanted."""
        self._trackers = make_trackers(config, self.folder.path, self.started_at)

    def record_event(self, kind: str, reason: str, **details: object) -> None:
        """Write an event to events.jsonl; warnings and changes by the adaptation are shown too."""
        self.folder.append("events", {"wall_s": self.wall_s, "kind": kind, "reason": reason, **details})
        if kind == "warning":
            self.display.warn(reason)
        elif kind == "adapt":
            self.display.adapted(reason)
        elif kind == "machine":
            self.display.note(reason)

    def warn_once(self, warning: str | None) -> None:
        """Record a warning unless there is none, or it was recorded before."""
        if warning is not None and warning not in self._warned:
            self._warned.add(warning)
            self.record_event("warning", warning)

    def measured(self, measurement: Measurement) -> None:
        """Record a measurement."""
        self.folder.append("metrics", measurement.as_line())
        self.display.show(measurement)
        self._warn_of(self._trackers.measured(measurement))

    def evaluated(self, evaluation: Evaluation, env: str) -> None:
        """Record an evaluation. One that does not count is in the journal alone, and the first leads to a warning."""
        self.folder.append("evaluations", dataclasses.asdict(evaluation))
        if not evaluation.counts:
            if not self._has_left_out:
                self._has_left_out = True
                self.record_event("warning", _why_left_out(evaluation, env))
            return
        self.display.evaluated(evaluation)
        self._warn_of(self._trackers.evaluated(evaluation))

    def evaluating(self, under_way: EvaluationUnderWay) -> None:
        """Show how far an evaluation is. It is recorded with the next measurement, and as a result once complete."""
        self.display.evaluating(under_way)

    def close_trackers(self, has_failed: bool, is_interrupted: bool) -> None:
        """Let trackers keep what they have; an upload may take seconds, but not after an interrupt."""
        self._warn_of(self._trackers.close(has_failed, is_interrupted))

    def _warn_of(self, warnings: list[str]) -> None:
        for warning in warnings:
            self.warn_once(warning)


def _why_left_out(evaluation: Evaluation, env: str) -> str:
    unusable, episodes = evaluation.unusable_episodes, len(evaluation.returns)
    return (
        f"{env} gives returns that are not finite or beyond {MAX_MAGNITUDE:.0e} in {unusable} of {episodes} episodes "
        "of an evaluation, which does not count: check its rewards; summary.json has the number of such evaluations"
    )
