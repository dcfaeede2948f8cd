"""Keeps the best version of a run whose evaluations are taken from its training episodes.

In: those evaluations, and the versions that the learner publishes. Out: the run folder's `best/`.
"""

from __future__ import annotations

from pathlib import Path

from spreeze.channels.weights import WeightsFile, read_weights, version_path
from spreeze.evaluation.best import Best
from spreeze.runs.records import Evaluation


class TrainingBest:
    """Continues from the best version of an earlier session."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir, self._best = run_dir, Best(run_dir / "best")

    def take(self, evaluation: Evaluation) -> str | None:
        """Keep the version of an evaluation if it is the best; return a warning about the disk, if there is one."""
        path = version_path(self._run_dir / "weights", evaluation.version)
        try:
            tensors, metadata = read_weights(path, must_have_checksum=True, root=self._run_dir)
            weights = WeightsFile(tensors, metadata, evaluation.version, float(metadata["published_at"]))
        except (OSError, ValueError, KeyError):
            return None  # newer ones have taken its place, or the disk fails: the next episode may be as good
        return self._best.offer(weights, evaluation)
