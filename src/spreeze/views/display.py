"""The interface through which a run is shown to its user, from its start to its result.

`terminal` implements it for a terminal; `QuietDisplay` shows nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from spreeze.config import Config
from spreeze.runs.records import Evaluation, EvaluationUnderWay, Measurement
from spreeze.runs.result import Result


class Display(Protocol):
    """Shows a run to its user."""

    def begin(self, config: Config, run_dir: Path, replay_bytes: int) -> None:
        """Show that the run starts. replay_bytes: the planned size of its replay."""
        ...

    def show(self, measurement: Measurement) -> None:
        """Show the latest measurement."""
        ...

    def evaluated(self, evaluation: Evaluation) -> None:
        """Show an evaluation."""
        ...

    def evaluating(self, under_way: EvaluationUnderWay) -> None:
        """Show how far an evaluation is, until it is complete."""
        ...

    def adapted(self, reason: str) -> None:
        """Show a change of the run's settings, or a finding of the adaptation."""
        ...

    def show_address(self, address: str) -> None:
        """Show where the dashboard is."""
        ...

    def warn(self, reason: str) -> None:
        """Show a problem that does not end the run."""
        ...

    def note(self, text: str) -> None:
        """Show a notice."""
        ...

    def end(self, result: Result | None) -> None:
        """Show the result; without one, after a failure, just restore the terminal."""
        ...


class QuietDisplay:
    """Shows nothing."""

    def begin(self, config: Config, run_dir: Path, replay_bytes: int) -> None:
        """Show nothing."""

    def show(self, measurement: Measurement) -> None:
        """Show nothing."""

    def evaluated(self, evaluation: Evaluation) -> None:
        """Show nothing."""

    def evaluating(self, under_way: EvaluationUnderWay) -> None:
        """Show nothing."""

    def adapted(self, reason: str) -> None:
        """Show nothing."""

    def show_address(self, address: str) -> None:
        """Show nothing."""

    def warn(self, reason: str) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""

    def end(self, result: Result | None) -> None:
        """Show nothing."""
