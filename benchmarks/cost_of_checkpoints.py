"""What checkpoints cost a training: updates/s while one is saved, compared with before and after, in one run.

    python benchmarks/cost_of_checkpoints.py HalfCheetah-v5 --rows 1000000 --checkpoints 4

Trains until the replay is full and so many checkpoints of all its rows were saved, then reads the run's own journals:
each line of metrics.jsonl is a window of a second, within a checkpoint or without one. Every checkpoint is compared
with the windows around it, because machines get slower and faster.
"""

from __future__ import annotations

import argparse
import re
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from flags import make_training_parser
from formats import markdown, span
from session import QUIET, SPREEZE, read_journal, write_result

MARGIN_S = 1.2  # a line belongs to the second before it
FULL = 0.9  # rows that are overwritten while they are saved are left out


def main() -> None:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        run_dir = Path(folder) / "run"
        train(run_dir, arguments)
        metrics, events = (read_journal(run_dir / f"{name}.jsonl") for name in ("metrics", "events"))
    figures = list(filter(None, (measure(event, metrics) for event in checkpoints(events, arguments.rows))))
    content = write_result("cost_of_checkpoints", arguments, {"checkpoints": figures})
    print(table(content) if figures else "no checkpoint of a full replay was measured: give it more --max-seconds")


def train(run_dir: Path, arguments: argparse.Namespace) -> None:
    """Train until enough checkpoints of all rows are there."""
    command = [*SPREEZE, "train", arguments.env, "--run-dir", str(run_dir), *QUIET, "--no-adapt"]
    command += ["--replay-rows", str(arguments.rows), "--checkpoint-interval-s", str(arguments.interval)]
    process = subprocess.Popen([*command, *arguments.train_args])
    deadline = time.monotonic() + arguments.max_seconds
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(1.0)
        # One more than is wanted: what comes after the last one is compared with it.
        if len(checkpoints(read_journal(run_dir / "events.jsonl"), arguments.rows)) > arguments.checkpoints:
            break
    process.send_signal(signal.SIGINT)
    process.wait()


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

    def rates(first_s: float, last_s: float) -> list[float]:
        return [line["update_hz"] for line in metrics if first_s <= line["wall_s"] <= last_s]

    within = rates(begin + MARGIN_S, end)
    around = rates(begin - event["seconds"], begin) + rates(end + MARGIN_S, end + 10)
    if len(within) < 2 or len(around) < 2:
        return None
    within_hz, around_hz = statistics.mean(within), statistics.mean(around)
    figures = {"within_hz": round(within_hz, 1), "beside_hz": round(around_hz, 1)}
    about = {"reason": event["reason"], "seconds": event["seconds"]}
    return {**about, **figures, "ratio": round(within_hz / around_hz, 4)}


def table(content: dict[str, Any]) -> str:
    rows = []
    for figure in content["checkpoints"]:
        rates = [f"{figure[name]:,.0f}" for name in ("within_hz", "beside_hz")]
        held = figure["reason"].partition(", with ")[2]
        rows.append([held, f"{figure['seconds']:.0f} s", *rates, f"{figure['ratio']:.3f}"])
    rows.append(["all", "", "", "", span([figure["ratio"] for figure in content["checkpoints"]], ".3f")])
    return markdown(("checkpoint", "saved in", "updates/s meanwhile", "before and after", "ratio"), rows)


def parse_arguments() -> argparse.Namespace:
    parser = make_training_parser(__doc__)
    parser.add_argument("env")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--interval", type=float, default=60.0, help="seconds between checkpoints")
    parser.add_argument("--checkpoints", type=int, default=4, help="how many of a full replay")
    parser.add_argument("--max-seconds", type=float, default=1800.0)
    parser.add_argument("--folder", help="where the run is written: the disk matters")
    return parser.parse_args()


if __name__ == "__main__":
    main()
