"""What a run tells of itself to whoever shows it to a person, from its start to what it reached.

`terminal` shows it in a terminal; `QuietDisplay` shows nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from spreeze.config import Config
from spreeze.runs.records import Evaluation, Measurement
from spreeze.runs.result import Result


class Display(Protocol):
    """What shows the run to a person."""

    def begin(self, config: Config, run_dir: Path, replay_bytes: int) -> None:
        """Show that the run starts, and what its replay was planned to take."""
        ...

    def show(self, measurement: Measurement) -> None:
        """Show the latest measurement."""
        ...

    def evaluated(self, evaluation: Evaluation) -> None:
        """Show an evaluation."""
        ...

    def adapted(self, reason: str) -> None:
        """Show what was changed in the run, or found out about it."""
        ...

    def warn(self, reason: str) -> None:
        """Show something that did not go as planned, but does not end the run."""
        ...

    def note(self, text: str) -> None:
        """Show something that is good to know, once."""
        ...

    def end(self, result: Result | None) -> None:
        """Show what was reached, or leave the terminal in order after a failure."""
        ...


class QuietDisplay:
    """Shows nothing."""

    def begin(self, config: Config, run_dir: Path, replay_bytes: int) -> None:
        """Show nothing."""

    def show(self, measurement: Measurement) -> None:
        """Show nothing."""

    def evaluated(self, evaluation: Evaluation) -> None:
        """Show nothing."""

    def adapted(self, reason: str) -> None:
        """Show nothing."""

    def warn(self, reason: str) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""

    def end(self, result: Result | None) -> None:
        """Show nothing."""
