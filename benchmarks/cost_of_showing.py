"""What viewer and dashboard cost a training: rates with them, and with a page open, beside rates without, in turn.

    python benchmarks/cost_of_showing.py HalfCheetah-v5 --repeats 3 --seconds 30 --page browser

Rates are those of counters over a window that begins after --skip seconds. --page browser opens the page in Chromium,
headless and on the same cores; --page frames only fetches the pictures, as a page on another machine does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from time_to_solve import describe_machine

WITHOUT, WITH, LOOKED_AT = "without", "viewer and dashboard", "and a page open"
RATES = ("sampling_hz", "update_frame_hz")
COUNTERS = {"sampling_hz": "env_steps", "update_hz": "updates"}


def main() -> None:
    arguments = parse_arguments()
    ways = [WITHOUT, WITH] + ([LOOKED_AT] if arguments.page != "none" else [])
    runs: list[dict[str, Any]] = []
    for repeat in range(arguments.repeats):
        # In turn, and the other way round each second time: machines get slower and faster.
        for way in ways if repeat % 2 == 0 else reversed(ways):
            runs.append({"way": way, "repeat": repeat, **run(way, arguments)})
            print(json.dumps(runs[-1]), flush=True)
    print(table(runs, ways))
    if arguments.json is not None:
        figures = {"arguments": vars(arguments) | {"json": None}, "machine": describe_machine(None), "runs": runs}
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


def run(way: str, arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        shown = "--no-dashboard" if way == WITHOUT else "--dashboard"
        command = [sys.executable, "-m", "spreeze", "train", arguments.env, "--run-dir", str(run_dir), shown]
        command += ["--no-adapt", "--no-video", "--max-seconds", str(arguments.seconds), *arguments.train_args]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        with contextlib.ExitStack() as stack:
            for line in process.stdout:
                found = re.search(r"http://\S+token=\S+", line)
                if found and way == LOOKED_AT:
                    stack.enter_context({"browser": in_browser, "frames": frames_of}[arguments.page](found[0]))
            process.wait()
        return rates(run_dir / "metrics.jsonl", arguments.skip)


def rates(path: Path, skip_s: float) -> dict[str, Any]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    window = [line for line in lines if line["wall_s"] >= skip_s]
    first, last = window[0], window[-1]
    seconds = last["wall_s"] - first["wall_s"]
    measured = {rate: (last[counter] - first[counter]) / seconds for rate, counter in COUNTERS.items()}
    guests = [sum(line["cpu_by_role"].get(role, 0.0) for role in ("viewer", "dashboard")) for line in window]
    return {
        "sampling_hz": round(measured["sampling_hz"], 1),
        "update_frame_hz": round(measured["update_hz"] * last["batch_size"], 1),
        "cores_of_both": round(statistics.mean(guests), 3),
    }


@contextlib.contextmanager
def frames_of(address: str) -> Iterator[None]:
    """Ask for the next picture as soon as the last has come, at most ten times a second."""
    page = urllib.request.urlopen(address, timeout=10).read().decode()
    found = re.search(r"(/[\w-]+\?key=[\w-]+)", page)
    if found is None:
        sys.exit("the page has no address of pictures")
    pictures = address.partition("/?")[0] + found[0]
    over, count = threading.Event(), [0]

    def fetch() -> None:
        while not over.wait(0.1):
            with contextlib.suppress(OSError):
                count[0] += len(urllib.request.urlopen(f"{pictures}&after=0", timeout=5).read()) > 0

    thread = threading.Thread(target=fetch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        print(f"{count[0]} pictures", flush=True)


@contextlib.contextmanager
def in_browser(address: str) -> Iterator[None]:
    chromium = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
    if chromium is None:
        sys.exit("--page browser needs Chromium; --page frames does without")
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", f"--user-data-dir={profile}", "--remote-debugging-port=0"]
        browser = subprocess.Popen([chromium, *flags, address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            browser.terminate()
            browser.wait()
            time.sleep(0.5)  # its children still write to the profile


def table(runs: list[dict[str, Any]], ways: list[str]) -> str:
    lines = ["| | env steps/s | update frames/s | cores of viewer and dashboard |", "|---|---|---|---|"]
    for way in ways:
        own = [run for run in runs if run["way"] == way]
        cells = [describe(runs, own, rate) for rate in RATES]
        cores = f"{statistics.median(run['cores_of_both'] for run in own):.3f}"
        lines.append(f"| {way} | {' | '.join(cells)} | {cores} |")
    return "\n".join(lines)


def describe(runs: list[dict[str, Any]], own: list[dict[str, Any]], rate: str) -> str:
    """The median, and the ratio to the run without of the same repeat: median and range."""
    beside: Callable[[int], float] = lambda repeat: next(  # noqa: E731
        float(run[rate]) for run in runs if run["way"] == WITHOUT and run["repeat"] == repeat
    )
    ratios = [run[rate] / beside(run["repeat"]) for run in own]
    median = f"{statistics.median(run[rate] for run in own):,.0f}"
    if own[0]["way"] == WITHOUT:
        return median
    return f"{median}, {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--skip", type=float, default=10.0)
    parser.add_argument("--page", choices=("none", "browser", "frames"), default="none")
    parser.add_argument("--train-args", nargs=argparse.REMAINDER, default=[])
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
