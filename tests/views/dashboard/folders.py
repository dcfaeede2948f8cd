"""Run folders as runs leave them, written by hand: of any length, at any moment of a run."""

from __future__ import annotations

import json
import math
import os
import random
import time
from pathlib import Path
from typing import Any


def metric(i: int, **changes: Any) -> dict[str, Any]:
    """The line of the i-th second."""
    noise = random.Random(i)
    sampling_hz = 3000 + 300 * noise.random()
    return {
        "wall_s": float(i + 1),
        "env_steps": 3000 * (i + 1),
        "updates": 300 * i,
        "episodes": 15 * i,
        "sampling_hz": round(sampling_hz, 1),
        "update_hz": round(sampling_hz / 10, 1),
        "update_frame_hz": round(sampling_hz * 25.6, 1),
        "batch_size": 256,
        "num_samplers": 4,
        "updates_per_step": 0.1,
        "policy_lag_s": round(0.1 + 0.1 * noise.random(), 4),
        "replay_rows": min(1_000_000, 3000 * (i + 1)),
        "ring_wait_s": round(0.48 * i, 3),
        "ratio_wait_s": 0.0,
        "learner_wait_s": 0.0,
        "train_return": -1500 + 1350 * (1 - math.exp(-i / 60)) + 80 * noise.random(),
        "cpu_percent": 91.0,
        "gpu_percent": None,
        "rss_bytes": 1_200_000_000,
        "gpu_bytes": None,
        "rows_rejected": 0,
        "critic_loss": 20 * math.exp(-i / 80) + noise.random(),
        "actor_loss": 150 - 100 * math.exp(-i / 60) + 5 * noise.random(),
        "temperature_loss": noise.random() - 0.5,
        "temperature": 0.2 + 0.3 * math.exp(-i / 40),
        "q_mean": -150 + 100 * math.exp(-i / 60),
        "entropy": -1 + math.exp(-i / 50) + 0.1 * noise.random(),
        "ring_fill": 0.3,
        "cpu_cores": [100.0, 92.0, 88.0, 84.0],
        "cpu_by_role": {"sampler": 2.6, "learner": 1.0, "evaluator": 0.1, "viewer": 0.1},
        **changes,
    }


def evaluation(i: int, offset: float = 0.0) -> dict[str, Any]:
    """The evaluation of the i-th second."""
    noise = random.Random(i)
    mean = -1500 + (1350 + offset) * (1 - math.exp(-i / 60)) + 40 * noise.random()
    returns = [mean + 60 * (noise.random() - 0.5) for _ in range(10)]
    return {
        "wall_s": i + 1.5,
        "env_steps": 3000 * (i + 1),
        "updates": 300 * i,
        "version": 4 * i + 1,
        "mean_return": mean,
        "std_return": 40 + 260 * math.exp(-i / 50),
        "returns": returns,
        "lengths": [200] * 10,
    }


EVENTS = (
    {"wall_s": 0.5, "kind": "choice", "reason": "no GPU is here", "setting": "device", "value": "cpu"},
    {"wall_s": 0.5, "kind": "choice", "reason": "4 cores: one each", "setting": "samplers", "value": 4},
    {"wall_s": 12.0, "kind": "adapt", "decision": "try", "reason": "try 5 samplers x 16 environments, batch 256"},
    {"wall_s": 19.0, "kind": "adapt", "decision": "keep", "reason": "kept samplers 4 -> 5: objective +18.2%"},
)


def append(path: Path, *lines: dict[str, Any]) -> None:
    """Append lines to a journal."""
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    # A run that writes nothing is taken for dead after some seconds, which a loaded machine may need to look at it.
    os.utime(path, (time.time() + 3600,) * 2)


def write_run(path: Path, seconds: int, *, offset: float = 0.0, ends: str | None = None, **config: Any) -> Path:
    """Write the folder of a run; ends: its stop_reason, if it has ended."""
    path.mkdir(parents=True, exist_ok=True)
    settings = {"env": "Pendulum-v1", "algo": "sac", "seed": 0, "replay_rows": 1_000_000, "publish_interval_s": 0.25}
    (path / "config.json").write_text(json.dumps({**settings, "run_dir": str(path), **config}))
    append(path / "metrics.jsonl", *(metric(i) for i in range(seconds)))
    append(path / "evaluations.jsonl", *(evaluation(i, offset) for i in range(3, seconds, 3)))
    append(path / "events.jsonl", *EVENTS)
    if ends is not None:
        finish(path, seconds, ends)
    return path


def finish(path: Path, seconds: int, stop_reason: str = "max_seconds") -> None:
    """End a run."""
    summary = {
        "stop_reason": stop_reason,
        "wall_s": float(seconds),
        "env_steps": 3000 * seconds,
        "updates": 300 * seconds,
        "best_return": -143.2,
        "time_to_target_s": None,
    }
    (path / "summary.json").write_text(json.dumps(summary))
