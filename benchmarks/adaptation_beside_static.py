"""Time to a return with adaptation, beside static settings: each named by its flags, in turn for each seed.

    python benchmarks/adaptation_beside_static.py Pendulum-v1 --target-return -200 \
        --static "best=--batch-size 64" --static "worst=--batch-size 512 --samplers 2"

Every run starts without what earlier ones have found. Out: a Markdown table with medians and their ratio to the best
static ones, and with --json every run.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from spreeze.commands.bench.machine import describe_machine

ADAPTED = "adapted"


def main() -> None:
    arguments = parse_arguments()
    ways = {ADAPTED: ["--fresh"], "defaults": ["--no-adapt"]}
    for text in arguments.static:
        name, _, flags = text.partition("=")
        ways[name] = ["--no-adapt", *shlex.split(flags)]
    runs: list[dict[str, Any]] = []
    for seed in arguments.seeds:
        for name, flags in ways.items():
            runs.append({"name": name, "seed": seed, "flags": flags, **run(flags, seed, arguments)})
            print(f"{name:<12} seed {seed}  {seconds_text(runs[-1])}", flush=True)
    print(table(runs, list(ways)))
    if arguments.json is not None:
        figures = {"arguments": vars(arguments) | {"json": None}, "machine": describe_machine(), "runs": runs}
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


def run(flags: list[str], seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        command = [sys.executable, "-m", "spreeze", "train", arguments.env, "--run-dir", str(run_dir), "--quiet"]
        limits = ["--target-return", str(arguments.target_return), "--max-seconds", str(arguments.max_seconds)]
        command += ["--no-dashboard", "--no-video"]  # nothing that would share the machine with what is measured
        subprocess.run([*command, *limits, "--seed", str(seed), *flags], check=True)
        summary: dict[str, Any] = json.loads((run_dir / "summary.json").read_text())
        events = [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]
    decisions = [(event["wall_s"], event["reason"]) for event in events if event["kind"] == "adapt"]
    return {**summary, "decisions": decisions}


def seconds_of(figures: dict[str, Any]) -> float:
    """A run that did not reach its target counts with the time it had: too little."""
    reached = figures["time_to_target_s"]
    return float(figures["wall_s"] if reached is None else reached)


def seconds_text(figures: dict[str, Any]) -> str:
    if figures["time_to_target_s"] is None:
        return f"not within {figures['wall_s']:.0f} s (best return {figures['best_return']})"
    return f"{figures['time_to_target_s']:.1f} s"


def table(runs: list[dict[str, Any]], names: list[str]) -> str:
    by_name = {name: [figures for figures in runs if figures["name"] == name] for name in names}
    medians = {name: statistics.median(map(seconds_of, group)) for name, group in by_name.items()}
    best = min(median for name, median in medians.items() if name != ADAPTED)
    lines = ["", "| settings | flags | median | each seed | to the best static |", "|---|---|---|---|---|"]
    for name, group in by_name.items():
        each = ", ".join(seconds_text(figures) for figures in group)
        flags = " ".join(group[0]["flags"])
        lines.append(f"| {name} | `{flags}` | {medians[name]:.1f} s | {each} | {medians[name] / best:.2f} |")
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env")
    parser.add_argument("--target-return", type=float, required=True)
    parser.add_argument("--max-seconds", type=float, default=120.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--static", action="append", default=[], metavar="NAME=FLAGS")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
