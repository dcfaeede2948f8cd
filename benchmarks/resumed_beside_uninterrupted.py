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

from sitting import describe_machine


def main() -> None:
    arguments = parse_arguments()
    runs: list[dict[str, Any]] = []
    for seed in arguments.seeds:
        for stops in (0, arguments.stops):
            runs.append({"seed": seed, "stops": stops, **run(seed, stops, arguments)})
            print(json.dumps(runs[-1]), flush=True)
    alone, stopped = ([run["updates"] for run in runs if bool(run["stops"]) is is_on] for is_on in (False, True))
    ratio = statistics.median(stopped) / statistics.median(alone)
    print(f"updates to {arguments.target_return:g}: {alone} left alone, {stopped} resumed {arguments.stops} times;")
    print(f"medians {statistics.median(alone):g} and {statistics.median(stopped):g}, ratio {ratio:.2f}")
    if arguments.json is not None:
        content = {"arguments": vars(arguments) | {"json": None}, "machine": describe_machine(), "runs": runs}
        arguments.json.write_text(json.dumps(content, indent=2) + "\n")


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
