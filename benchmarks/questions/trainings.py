"""One `spreeze train` from its command to its end, and what is left of it for a comparison of returns.

In: an environment and flags. Out: a dictionary with its evaluations, its summary and who used the cores.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sitting import DISTURBED_CORES, read_lines, read_result, run_command

# Nothing that would share the machine with what is measured, or make a run start from what an earlier one has found.
QUIET_FLAGS = (
    "--quiet",
    "--fresh",
    "--no-dashboard",
    "--no-video",
    "--no-tensorboard",
    "--checkpoint-interval-s=0",
)
SUMMARY = ("stop_reason", "wall_s", "env_steps", "updates", "best_return", "sampling_hz", "update_frame_hz")
EXTRA_S = 120.0  # for start and end of a run: what takes longer hangs


def train(env: str, flags: Sequence[str], max_seconds: float) -> dict[str, Any]:
    """Train in a folder that is deleted afterwards; raise RunCrashed with the end of its stderr if it fails."""
    with tempfile.TemporaryDirectory(prefix="questions-") as name:
        folder, run_dir = Path(name), Path(name) / "run"
        command = [sys.executable, "-m", "spreeze", "train", env, f"--run-dir={run_dir}", *QUIET_FLAGS]
        cpu = run_command([*command, f"--max-seconds={max_seconds}", *flags], folder, max_seconds + EXTRA_S)
        summary = read_result(run_dir / "summary.json")
        evaluations = [json.loads(line) for line in read_lines(run_dir / "evaluations.jsonl")]
        metrics = [json.loads(line) for line in read_lines(run_dir / "metrics.jsonl")]
    return {
        **{name: summary[name] for name in SUMMARY},
        "episodes": max((line["episodes"] for line in metrics), default=0),
        "evaluations": [[e["wall_s"], e["env_steps"], e["updates"], round(e["mean_return"], 3)] for e in evaluations],
        "cpu": {**dataclasses.asdict(cpu), "others_cores": round(cpu.others_cores, 3)},
    }


def disturbed_note(runs: Sequence[dict[str, Any]]) -> str:
    """Say how many runs were not alone, or nothing."""
    disturbed = sum(run["cpu"]["others_cores"] > DISTURBED_CORES for run in runs)
    return f"\n{disturbed} of {len(runs)} runs shared the cores with others." if disturbed else ""
