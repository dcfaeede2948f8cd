"""Updates to a return of a run that is stopped and resumed again and again, beside one that is left alone.

    python benchmarks/resumed_beside_uninterrupted.py --seeds 0 1 2 --stops 5

A run stops after so many more updates each time. Out: a table of updates and seconds to the return, and JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from sitting import describe_sitting, settings_of, span, write_json


def main() -> None:
    arguments = parse_arguments()
    runs: list[dict[str, Any]] = []
    for seed in arguments.seeds:
        for stops in (0, arguments.stops):
            runs.append({"seed": seed, "stops": stops, **run(seed, stops, arguments)})
            print(json.dumps(runs[-1]), flush=True)
    settings = settings_of(arguments, leave_out=("json",))
    content = {**describe_sitting("resumed_beside_uninterrupted", settings), "runs": runs}
    print(table(content))
    write_json(arguments.json, content)


def run(seed: int, stops: int, arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        spreeze = [sys.executable, "-m", "spreeze"]
        limits = [f"--max-updates={arguments.every}"] if stops else []
        target = f"--target-return={arguments.target_return}"
        settings = ["--quiet", "--no-dashboard", "--no-video", "--fresh", "--no-adapt", f"--seed={seed}"]
        command = ["train", arguments.env, f"--run-dir={run_dir}", target, *settings, *limits]
        subprocess.run([*spreeze, *command], check=True)
        for stop in range(1, stops + 1):
            summary = read(run_dir)
            if summary["stop_reason"] == "target_return":
                break
            more = summary["updates"] + arguments.every if stop < stops else 10**9
            subprocess.run([*spreeze, "resume", str(run_dir), f"--max-updates={more}", "--quiet"], check=True)
        summary = read(run_dir)
        return {name: summary[name] for name in ("stop_reason", "updates", "env_steps", "wall_s", "best_return")}


def read(run_dir: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((run_dir / "summary.json").read_text())
    return summary


def updates_of(content: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Return the updates to the return of the runs that were left alone, and of those that were stopped."""
    runs = content["runs"]
    alone, stopped = ([run["updates"] for run in runs if bool(run["stops"]) is is_on] for is_on in (False, True))
    return alone, stopped


def table(content: dict[str, Any]) -> str:
    """Show the updates of both, and their ratio."""
    alone, stopped = updates_of(content)
    settings, ratio = content["settings"], statistics.median(stopped) / statistics.median(alone)
    target = f"{settings['env']}, updates to {settings['target_return']:g}"
    lines = [f"| {target} | median (lowest to highest) | each seed | ratio |", "|---|---|---|---|"]
    lines.append(f"| left alone | {span(alone, ',.0f')} | {listed(alone)} | 1.00 |")
    how = f"stopped every {settings['every']} updates, {settings['stops']} times, and resumed"
    return "\n".join([*lines, f"| {how} | {span(stopped, ',.0f')} | {listed(stopped)} | {ratio:.2f} |"])


def listed(updates: list[int]) -> str:
    return ", ".join(f"{count:,}" for count in updates)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--target-return", type=float, default=-200.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--stops", type=int, default=5)
    parser.add_argument(
        "--every",
        type=int,
        default=320,
        help="updates between two stops; less than an episode of every environment changes what is seen",
    )
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
