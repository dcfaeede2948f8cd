"""What a run reached, and why it stopped: the fields of summary.json."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from spreeze.runs.records import ClusterFigures, Punctuality


@dataclass(frozen=True)
class Result:
    """What a run reached."""

    run_dir: Path
    stop_reason: StopReason
    wall_s: float
    """Until it was to end."""
    env_steps: int
    updates: int
    best_return: float | None
    """Best mean return of an evaluation."""
    time_to_target_s: float | None
    sampling_hz: float
    update_frame_hz: float
    checkpoint_s: float = 0.0
    """What the checkpoint at the end took after that; 0 if there was none."""
    last_evaluation_s: float = 0.0
    """What the evaluation of the newest version at the end took after that; 0 if there was none."""
    evaluations_left_out: int = 0
    """How many evaluations do not count, because a return, or their mean, was not finite."""
    realtime: Punctuality | None = None
    """With --realtime: how many steps were late, and how late."""
    cluster: ClusterFigures | None = None
    """With --cluster: how many rows other machines have sampled, and how many of them were lost."""


StopReason = Literal[
    "target_return",
    "max_seconds",
    "max_env_steps",
    "max_updates",
    "measured",
    "stopped",
    "interrupted",
    "terminated",
    "failed",
]
