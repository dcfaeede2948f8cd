"""What viewer and dashboard cost a training: rates with them, and with a page open, beside rates without, in one run.

    python benchmarks/cost_of_showing.py HalfCheetah-v5 --rounds 8 --page browser

Machines get slower and faster by themselves from one run to the next, by more than this costs. So it is one training
in which both processes, and the page's, are stopped and let go on in turn: a window for each way, in each round.
--page browser opens the page in Chromium, headless and on the same cores; --page frames only fetches the pictures,
as a page on another machine does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import psutil

from sitting import describe_sitting, settings_of, write_json

WITHOUT, WITH, LOOKED_AT = "without", "viewer and dashboard", "and a page open"
PAGES = {
    "none": "",
    "browser": "and the page open in Chromium, on the same cores",
    "frames": "and a client that fetches the pictures",
}
COUNTERS = {"sampling_hz": "env_steps", "update_hz": "updates"}
ROLES = ("view", "dashboard")
SETTLE_S = 1.0  # of each window, not counted: what was stopped has to catch up


class Page(Protocol):
    """Somebody who looks."""

    def look(self, *, is_on: bool) -> None:
        """Go on looking, or look away."""


def main() -> None:
    arguments = parse_arguments()
    ways = [WITHOUT, WITH] + ([LOOKED_AT] if arguments.page != "none" else [])
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        windows = train(run_dir, ways, arguments)
        figures = [measure(run_dir / "metrics.jsonl", *window) for window in windows]
    settings = settings_of(arguments, leave_out=("json",))
    content = {**describe_sitting("cost_of_showing", settings), "windows": figures}
    print(table(content))
    write_json(arguments.json, content)


def train(run_dir: Path, ways: list[str], arguments: argparse.Namespace) -> list[tuple[str, int, float, float]]:
    """Train, and let each way have its window in each round; return them as way, round, and wall_s from and to."""
    command = [sys.executable, "-m", "spreeze", "train", arguments.env, "--run-dir", str(run_dir), "--dashboard"]
    started_at = time.monotonic()
    process = subprocess.Popen(
        [*command, "--no-adapt", "--no-video", *arguments.train_args],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        address = address_of(process)
        windows = []
        with {"none": nobody, "browser": in_browser, "frames": frames_of}[arguments.page](address) as page:
            time.sleep(max(0.0, started_at + arguments.skip - time.monotonic()))
            guests = guests_of(process.pid)
            for number in range(arguments.rounds):
                # The other way round each second time: what comes first has no advantage.
                for way in ways if number % 2 == 0 else reversed(ways):
                    page.look(is_on=way == LOOKED_AT)
                    for guest in guests:
                        guest.send_signal(signal.SIGSTOP if way == WITHOUT else signal.SIGCONT)
                    time.sleep(SETTLE_S)
                    begin = time.monotonic() - started_at
                    time.sleep(arguments.window)
                    windows.append((way, number, begin, time.monotonic() - started_at))
            page.look(is_on=True)
            for guest in guests:
                guest.send_signal(signal.SIGCONT)
        return windows
    finally:
        process.terminate()
        process.wait()


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if found := re.search(r"http://\S+token=\S+", line):
            threading.Thread(target=process.stdout.read, daemon=True).start()  # so that the pipe never fills
            return found[0]
    sys.exit("the training has no dashboard:\n" + "".join(said))


def guests_of(pid: int) -> list[psutil.Process]:
    """Return viewer and dashboard. A viewer that has given up is worth knowing of."""
    children = {child: child.cmdline() for child in psutil.Process(pid).children()}
    guests = [child for child, words in children.items() if any(role in words for role in ROLES)]
    if len(guests) < len(ROLES):
        print("there is no viewer here: only the dashboard is measured", flush=True)
    return guests


def measure(path: Path, way: str, number: int, begin: float, end: float) -> dict[str, Any]:
    """Return the rates between the first and the last line that the window holds."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    window = [line for line in lines if begin <= line["wall_s"] <= end]
    first, last = window[0], window[-1]
    seconds = last["wall_s"] - first["wall_s"]
    rates = {rate: (last[counter] - first[counter]) / seconds for rate, counter in COUNTERS.items()}
    cores = [sum(line["cpu_by_role"].get(role, 0.0) for role in ("viewer", "dashboard")) for line in window[1:]]
    return {
        "way": way,
        "round": number,
        **{rate: round(value, 1) for rate, value in rates.items()},
        "cores_of_both": round(statistics.mean(cores), 3),
    }


class Nobody:
    """Nobody looks."""

    def look(self, *, is_on: bool) -> None:
        """Do nothing."""


@contextlib.contextmanager
def nobody(_address: str) -> Iterator[Page]:
    yield Nobody()


class Frames:
    """Asks for the next picture as soon as the last has come, at most ten times a second."""

    def __init__(self, pictures: str) -> None:
        self._pictures, self.count = pictures, 0
        self._is_on, self.is_over = threading.Event(), threading.Event()

    def look(self, *, is_on: bool) -> None:
        """Fetch, or pause."""
        self._is_on.set() if is_on else self._is_on.clear()

    def fetch(self) -> None:
        while not self.is_over.wait(0.1):
            self._is_on.wait()
            with contextlib.suppress(OSError):
                self.count += len(urllib.request.urlopen(f"{self._pictures}&after=0", timeout=5).read()) > 0


@contextlib.contextmanager
def frames_of(address: str) -> Iterator[Page]:
    page = urllib.request.urlopen(address, timeout=10).read().decode()
    found = re.search(r"(/[\w-]+\?key=[\w-]+)", page)
    if found is None:
        sys.exit("the page has no address of pictures")
    frames = Frames(address.partition("/?")[0] + found[0])
    thread = threading.Thread(target=frames.fetch)
    thread.start()
    try:
        yield frames
    finally:
        frames.is_over.set()
        frames.look(is_on=True)
        thread.join()
        print(f"{frames.count} pictures", flush=True)


class Browser:
    """Chromium with the page open."""

    def __init__(self, pid: int) -> None:
        self._main = psutil.Process(pid)

    def look(self, *, is_on: bool) -> None:
        """Go on with all its processes, or stop them."""
        for process in (self._main, *self._main.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGCONT if is_on else signal.SIGSTOP)


@contextlib.contextmanager
def in_browser(address: str) -> Iterator[Page]:
    chromium = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
    if chromium is None:
        sys.exit("--page browser needs Chromium; --page frames does without")
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", f"--user-data-dir={profile}", "--remote-debugging-port=0"]
        process = subprocess.Popen([chromium, *flags, address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        browser = Browser(process.pid)
        try:
            yield browser
        finally:
            browser.look(is_on=True)
            process.terminate()
            process.wait()
            time.sleep(0.5)  # its children still write to the profile


def table(content: dict[str, Any]) -> str:
    """Show the rates of each way, and what they are of those without."""
    figures = content["windows"]
    lines = ["| | env steps/s | updates/s | cores of viewer and dashboard |", "|---|---|---|---|"]
    for way in dict.fromkeys(figure["way"] for figure in figures):
        own = [figure for figure in figures if figure["way"] == way]
        cells = [describe(figures, own, rate) for rate in COUNTERS]
        cores = f"{statistics.median(figure['cores_of_both'] for figure in own):.3f}"
        name = PAGES[content["settings"]["page"]] if way == LOOKED_AT else way
        lines.append(f"| {name} | {' | '.join(cells)} | {cores} |")
    return "\n".join(lines)


def describe(figures: list[dict[str, Any]], own: list[dict[str, Any]], rate: str) -> str:
    """The median, and the ratio to the window without of the same round: median and quartiles."""
    median = f"{statistics.median(figure[rate] for figure in own):,.0f}"
    way = own[0]["way"]
    return median if way == WITHOUT else f"{median}: {quartiles(ratios(figures, way, rate))} of those without"


def ratios(figures: list[dict[str, Any]], way: str, rate: str) -> list[float]:
    """Return a rate of one way, as a share of that without in the same round."""
    without = {figure["round"]: figure[rate] for figure in figures if figure["way"] == WITHOUT}
    return [figure[rate] / without[figure["round"]] for figure in figures if figure["way"] == way]


def quartiles(values: list[float]) -> str:
    """Return the middle one, and the quartiles."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.3f} (quartiles {low:.3f} to {high:.3f})"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--window", type=float, default=4.0, help="seconds of each way in each round")
    parser.add_argument("--skip", type=float, default=15.0, help="seconds before the first round")
    parser.add_argument("--page", choices=("none", "browser", "frames"), default="none")
    parser.add_argument("--train-args", nargs=argparse.REMAINDER, default=[])
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
