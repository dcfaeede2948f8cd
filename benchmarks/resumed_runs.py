"""Updates to a return of a run that is stopped and resumed again and again, compared with one that is left alone.

    python benchmarks/resumed_runs.py --seeds 0 1 2 --stops 5

A run stops after so many more updates each time. Out: a table of updates to the return, and JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from flags import make_training_parser
from formats import markdown, span
from session import QUIET, SPREEZE, read_result, write_result


def main() -> None:
    arguments = parse_arguments()
    runs: list[dict[str, Any]] = []
    for seed in arguments.seeds:
        for stops in (0, arguments.stops):
            runs.append({"seed": seed, "stops": stops, **run(seed, stops, arguments)})
            print(json.dumps(runs[-1]), flush=True)
    print(table(write_result("resumed_runs", arguments, {"runs": runs})))


def run(seed: int, stops: int, arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        flags = [f"--run-dir={run_dir}", *QUIET, "--fresh", "--no-adapt", f"--seed={seed}"]
        flags += [f"--target-return={arguments.target_return}", *arguments.train_args]
        first = [f"--max-updates={arguments.every}"] if stops else []
        subprocess.run([*SPREEZE, "train", arguments.env, *flags, *first], check=True)
        for stop in range(1, stops + 1):
            summary = read_result(run_dir / "summary.json")
            if summary["stop_reason"] == "target_return":
                break
            more = summary["updates"] + arguments.every if stop < stops else 10**9
            subprocess.run([*SPREEZE, "resume", str(run_dir), f"--max-updates={more}", "--quiet"], check=True)
        summary = read_result(run_dir / "summary.json")
        return {name: summary[name] for name in ("stop_reason", "updates", "env_steps", "wall_s", "best_return")}


def table(content: dict[str, Any]) -> str:
    runs, settings = content["runs"], content["settings"]
    alone, stopped = ([run["updates"] for run in runs if bool(run["stops"]) is is_on] for is_on in (False, True))
    ratio = statistics.median(stopped) / statistics.median(alone)
    how = f"stopped every {settings['every']} updates, {settings['stops']} times, and resumed"
    rows = [
        [name, span(counts, ",.0f"), ", ".join(f"{count:,}" for count in counts), f"{of_alone:.2f}"]
        for name, counts, of_alone in (("left alone", alone, 1.0), (how, stopped, ratio))
    ]
    target = f"{settings['env']}, updates to {settings['target_return']:g}"
    return markdown((target, "median (lowest to highest)", "each seed", "ratio"), rows)


def parse_arguments() -> argparse.Namespace:
    parser = make_training_parser(__doc__)
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--target-return", type=float, default=-200.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--stops", type=int, default=5)
    every_help = "updates between two stops; less than an episode of every environment changes what is seen"
    parser.add_argument("--every", type=int, default=320, help=every_help)
    return parser.parse_args()


if __name__ == "__main__":
    main()
