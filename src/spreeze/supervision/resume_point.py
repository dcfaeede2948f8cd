"""Finds where a run can be resumed: its newest checkpoint whose networks are as they were written.

In: a run folder. Out: a `ResumePoint`, and what is wrong with newer checkpoints. The replay is not looked at here: a
learner leaves out what is damaged of it (`learning/restore_rows.py`), because an older checkpoint would cost updates.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spreeze.errors import CheckpointError, RunFolderError
from spreeze.runs.checkpoint_counters import counters_of
from spreeze.runs.checkpoint_format import discard, newest_checkpoints, verify_states
from spreeze.runs.journal_reader import newest_line, read_object
from spreeze.runs.progress import Progress
from spreeze.supervision.checkpoint_orders import ResumePoint


def newest_intact(run: Path, without_replay: bool = False) -> tuple[ResumePoint, list[str]]:
    """Find the newest checkpoint whose networks are as they were written, and what is wrong with newer ones."""
    folder, warnings = run / "checkpoint", list[str]()
    kept = newest_checkpoints(folder)
    for at, manifest in enumerate(kept):
        try:
            verify_states(folder, manifest)
            counters_of(manifest, "all")
            progress = Progress.of(manifest.progress)
        except CheckpointError as error:
            warnings.append(f"checkpoint {manifest.number} cannot be used, the one before is tried: {error}")
            continue
        return ResumePoint(tuple(kept[at:]), _at_last_sign(progress, run), without_replay), warnings
    if not warnings:
        raise RunFolderError(f"'{run}' has no checkpoint to resume from: start a new run with spreeze train")
    raise CheckpointError(warnings[-1].replace(", the one before is tried", ", and there is no other"))


def discard_newer(run: Path, resume_point: ResumePoint | None) -> None:
    """Discard checkpoints that are newer than the one to resume from: they are damaged."""
    folder = run / "checkpoint"
    for manifest in newest_checkpoints(folder):
        if resume_point is not None and manifest.number > resume_point.checkpoints[0].number:
            discard(folder, manifest)


def _at_last_sign(progress: Progress, run: Path) -> Progress:
    """Continue the clock from the last line of the metrics: time after the checkpoint was spent too."""
    wall_s = max(progress.wall_s, _number(newest_line(run / "metrics.jsonl") or {}, "wall_s", 0.0))
    # The best policy is kept where it is, whichever checkpoint the run is resumed from.
    kept = read_object(run / "best" / "evaluation.json", run) or {}
    known = -math.inf if progress.best_return is None else progress.best_return
    best = max(known, _number(kept, "mean_return", known))
    return dataclasses.replace(progress, wall_s=wall_s, best_return=best if math.isfinite(best) else None)


def _number(line: Mapping[str, Any], name: str, otherwise: float) -> float:
    value = line.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number and value is not None else otherwise
