"""One `spreeze train` from its command to its end, and what is left of it for a comparison of returns.

In: an environment and flags. Out: a dictionary with its evaluations, its summary and who used the cores.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kept_runs import KeptRuns
from session import DISTURBED_CORES, QUIET, SPREEZE, RunCrashed, read_journal, read_result, run_command

# Nor anything that makes a run start from what an earlier one has found, or copies the replay at its end.
MORE_QUIET = ("--fresh", "--no-tensorboard", "--checkpoint-interval-s=0")
SUMMARY = ("stop_reason", "wall_s", "env_steps", "updates", "best_return", "sampling_hz", "update_frame_hz")
EXTRA_S = 120.0  # for start and end of a run: what takes longer hangs
WALL_S, ENV_STEPS, RETURN = 0, 1, 3  # of an evaluation: wall_s, env_steps, updates, mean_return


def train(env: str, flags: Sequence[str], max_seconds: float) -> dict[str, Any]:
    """Train in a folder that is deleted afterwards; raise RunCrashed with the end of its stderr if it fails."""
    with tempfile.TemporaryDirectory(prefix="questions-") as name:
        folder, run_dir = Path(name), Path(name) / "run"
        command = [*SPREEZE, "train", env, f"--run-dir={run_dir}", *QUIET, *MORE_QUIET]
        cpu = run_command([*command, f"--max-seconds={max_seconds}", *flags], folder, max_seconds + EXTRA_S)
        summary = read_result(run_dir / "summary.json")
        evaluations, metrics = (read_journal(run_dir / f"{name}.jsonl") for name in ("evaluations", "metrics"))
    if not evaluations:
        raise RunCrashed(f"it ended after {summary['wall_s']:.0f} s, before its first evaluation: let it run longer")
    return {
        **{name: summary[name] for name in SUMMARY},
        "episodes": max((line["episodes"] for line in metrics), default=0),
        "evaluations": [[e["wall_s"], e["env_steps"], e["updates"], round(e["mean_return"], 3)] for e in evaluations],
        "cpu": {**dataclasses.asdict(cpu), "others_cores": round(cpu.others_cores, 3)},
    }


def run_missing(
    kept: KeptRuns,
    wanted: Sequence[dict[str, Any]],
    run_once: Callable[[dict[str, Any]], dict[str, Any]],
    progress_line: Callable[[dict[str, Any]], str],
) -> None:
    """Run what is not there yet, until the part is over, and say how much is left."""
    for key in wanted:
        if kept.has(**key) or kept.is_part_over():
            continue
        try:
            kept.add({**key, **run_once(key)})
        except RunCrashed as crash:
            raise SystemExit(f"{key} crashed: {crash}") from None
        print(progress_line(kept.runs[-1]), flush=True)
    if missing := sum(not kept.has(**key) for key in wanted):
        print(f"{missing} runs are left: the same command goes on.")


def disturbed_note(runs: Sequence[dict[str, Any]]) -> str:
    """Say how many runs were not alone, or nothing."""
    disturbed = sum(run["cpu"]["others_cores"] > DISTURBED_CORES for run in runs)
    return f"\n{disturbed} of {len(runs)} runs shared the cores with others." if disturbed else ""
