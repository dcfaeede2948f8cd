"""One training of a variant, and what its run folder says: rates from counters at both ends of a window.

In: a variant and how long to run it. Out: figures by name.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ablation.variants import Variant
from session import QUIET, RunCrashed, rates_of, read_journal, run_command, window_after
from spreeze.host.threads import thread_variables

HERE = Path(__file__).resolve().parent
END_LIMIT_S = 120.0  # a run that does not end by itself hangs
SETTLE_S = 1.0  # after the first update: the first ones are slow
Line = dict[str, Any]


def measure(variant: Variant, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    limit_s, target = arguments.skip + arguments.seconds, arguments.target_return
    with tempfile.TemporaryDirectory(prefix="ablation-") as folder:
        run_dir = Path(folder) / "run"
        launch = [str(HERE / "launch.py"), folder, str(variant.cores or 0), variant.start, variant.transport]
        command = [sys.executable, *launch, "train", arguments.env, "--run-dir", str(run_dir), *QUIET]
        # No checkpoints: no copy of the replay at the end.
        command += ["--max-seconds", str(limit_s), "--checkpoint-interval-s", "0", "--seed", str(seed)]
        command += [*variant.flags, *arguments.train_args]
        others_cores = run_command(command, Path(folder), limit_s + END_LIMIT_S).others_cores
        figures = window_figures(read_journal(run_dir / "metrics.jsonl"), arguments.skip)
        evaluations = read_journal(run_dir / "evaluations.jsonl")
    return {
        **figures,
        "limit_s": limit_s,
        "time_to_target_s": None if target is None else time_to(target, evaluations),
        "best_return": max((evaluation["mean_return"] for evaluation in evaluations), default=None),
        "others_cores": round(others_cores, 3),
    }


def window_figures(lines: Sequence[Line], skip_s: float) -> dict[str, Any]:
    """Return rates, shares and means between the first and the last line of the window."""
    window = window_after(lines, SETTLE_S, skip_s)
    if len(window) < 2:
        raise RunCrashed(f"it had no two lines of metrics after {skip_s:g} s: take a longer --seconds, or --skip")
    first, last, inside = window[0], window[-1], window[1:]
    rates = rates_of(window)

    def rate(counter: str) -> float:
        return float(last[counter] - first[counter]) / rates["window_s"]

    def mean(field: str) -> float | None:
        values = [float(line[field]) for line in inside if line[field] is not None]
        return statistics.mean(values) if values else None

    samplers, lag_s = statistics.mean(line["num_samplers"] for line in inside), mean("policy_lag_s")
    return {
        **rates,
        "first_update_s": next(line["wall_s"] for line in lines if line["updates"]),
        "actor_update_hz": rate("actor_updates"),
        "objective": math.cbrt(math.prod(rates[name] for name in ("sampling_hz", "update_hz", "update_frame_hz"))),
        "ring_wait_share": rate("ring_wait_s") / samplers,
        "ratio_wait_share": rate("ratio_wait_s") / samplers,
        **{f"{work}_share": rate(f"{work}_s") for work in ("ingest", "publish", "exchange")},
        "policy_lag_ms": None if lag_s is None else 1000 * lag_s,
        "cpu_percent": mean("cpu_percent"),
        "gpu_percent": mean("gpu_percent"),
        "num_samplers": last["num_samplers"],
        "batch_size": last["batch_size"],
    }


def time_to(target: float, evaluations: Sequence[Line]) -> float | None:
    """Return when an evaluation first reached the target; None if none did."""
    return next((float(line["wall_s"]) for line in evaluations if line["mean_return"] >= target), None)


def probe(program: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Run a probe in a process of its own; return what it has found."""
    done = subprocess.run(
        [sys.executable, str(HERE / program), json.dumps(settings)],
        capture_output=True,
        text=True,
        timeout=settings["seconds"] + END_LIMIT_S,
        env={**os.environ, **thread_variables(1)},  # as a run's own processes have it
    )
    if done.returncode:
        raise RunCrashed(f"{program} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
