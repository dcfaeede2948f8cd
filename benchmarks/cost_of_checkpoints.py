"""What checkpoints cost a training: updates/s while one is under way, beside updates/s before and after, in one run.

    python benchmarks/cost_of_checkpoints.py HalfCheetah-v5 --rows 1000000 --checkpoints 4

Trains until the replay is full and so many checkpoints of all its rows were saved, then reads the run's own journals:
each line of metrics.jsonl is a window of a second, within a checkpoint or without one. Every checkpoint is compared
with the windows beside it, because machines get slower and faster.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sitting import describe_sitting, settings_of, span, write_json

MARGIN_S = 1.2  # a line belongs to the second before it
FULL = 0.9  # rows that are overwritten while they are saved are left out


def main() -> None:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        run_dir = Path(folder) / "run"
        train(run_dir, arguments)
        metrics, events = (read(run_dir / f"{name}.jsonl") for name in ("metrics", "events"))
    figures = [
        figure for event in checkpoints(events, arguments.rows) if (figure := measure(event, metrics)) is not None
    ]
    settings = settings_of(arguments, leave_out=("json", "folder"))
    content = {**describe_sitting("cost_of_checkpoints", settings), "checkpoints": figures}
    print(table(content) if figures else "no checkpoint of a full replay was measured: give it more --max-seconds")
    write_json(arguments.json, content)


def train(run_dir: Path, arguments: argparse.Namespace) -> None:
    """Train until enough checkpoints of all rows are there."""
    command = [sys.executable, "-m", "spreeze", "train", arguments.env, "--run-dir", str(run_dir), "--quiet"]
    command += ["--no-adapt", "--no-dashboard", "--no-video", "--replay-rows", str(arguments.rows)]
    command += ["--checkpoint-interval-s", str(arguments.interval), *arguments.train_args]
    process = subprocess.Popen(command)
    deadline = time.monotonic() + arguments.max_seconds
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(1.0)
        # One more than is wanted: what comes after the last one is compared with it.
        if len(checkpoints(read(run_dir / "events.jsonl"), arguments.rows)) > arguments.checkpoints:
            break
    process.send_signal(signal.SIGINT)
    process.wait()


def read(path: Path) -> list[dict[str, Any]]:
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def checkpoints(events: list[dict[str, Any]], rows: int) -> list[dict[str, Any]]:
    """Return those of a full replay."""
    found = []
    for event in events:
        held = re.search(r"with ([\d,]+) transitions", event["reason"]) if event["kind"] == "checkpoint" else None
        if held is not None and int(held[1].replace(",", "")) >= FULL * rows:
            found.append(event)
    return found


def measure(event: dict[str, Any], metrics: list[dict[str, Any]]) -> dict[str, Any] | None:
    end = event["wall_s"]
    begin = end - event["seconds"]
    within = [line["update_hz"] for line in metrics if begin + MARGIN_S <= line["wall_s"] <= end]
    beside = [
        line["update_hz"]
        for line in metrics
        if begin - event["seconds"] <= line["wall_s"] <= begin or end + MARGIN_S <= line["wall_s"] <= end + 10
    ]
    if len(within) < 2 or len(beside) < 2:
        return None
    rates = {"within_hz": statistics.mean(within), "beside_hz": statistics.mean(beside)}
    return {
        "reason": event["reason"],
        "seconds": event["seconds"],
        **{name: round(value, 1) for name, value in rates.items()},
        "ratio": round(rates["within_hz"] / rates["beside_hz"], 4),
    }


def table(content: dict[str, Any]) -> str:
    """Show each checkpoint, and the median over all."""
    lines = ["| checkpoint | saved in | updates/s meanwhile | beside it | ratio |", "|---|---|---|---|---|"]
    for figure in content["checkpoints"]:
        held = figure["reason"].partition(", with ")[2]
        rates = f"{figure['within_hz']:,.0f} | {figure['beside_hz']:,.0f}"
        lines.append(f"| {held} | {figure['seconds']:.0f} s | {rates} | {figure['ratio']:.3f} |")
    return "\n".join(
        [*lines, f"| all | | | | {span([figure['ratio'] for figure in content['checkpoints']], '.3f')} |"]
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--interval", type=float, default=60.0, help="seconds between checkpoints")
    parser.add_argument("--checkpoints", type=int, default=4, help="how many of a full replay")
    parser.add_argument("--max-seconds", type=float, default=1800.0)
    parser.add_argument("--folder", help="where the run is written: the disk matters")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--train-args", nargs=argparse.REMAINDER, default=[])
    return parser.parse_args()


if __name__ == "__main__":
    main()
