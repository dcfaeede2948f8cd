"""What viewer and dashboard cost a training: rates with them, with a page open, and without, in one run.

    python benchmarks/cost_of_showing.py HalfCheetah-v5 --rounds 8 --page browser

Machines get slower and faster from one run to the next, by more than this costs. So it is one training in which both
processes, and the page's, are stopped and let go on in turn: a window for each mode, in each round.
"""

from __future__ import annotations

import argparse
import contextlib
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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil

from flags import make_training_parser
from formats import markdown
from session import SPREEZE, children_by_role, rates_of, read_journal, write_result
from spreeze.commands.bench.solve import stop_process

WITHOUT, WITH, LOOKED_AT = "without", "viewer and dashboard", "and a page open"
PAGES = {
    "none": "",
    "browser": "and the page open in Chromium, on the same cores",
    "frames": "and a client that fetches the pictures",
}
RATES = ("sampling_hz", "update_hz")
ROLES = ("viewer", "dashboard")
Look = Callable[[bool], None]
SETTLE_S = 1.0  # of each window, not counted: what was stopped has to catch up


def main() -> None:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        windows = train(run_dir, arguments)
        figures = [measure(run_dir / "metrics.jsonl", *window) for window in windows]
    print(table(write_result("cost_of_showing", arguments, {"windows": figures})))


def train(run_dir: Path, arguments: argparse.Namespace) -> list[tuple[str, int, float, float]]:
    """Train, and let each mode have its window in each round; return them as mode, round, and wall_s from and to."""
    command = [*SPREEZE, "train", arguments.env, "--run-dir", str(run_dir), "--dashboard", "--no-adapt", "--no-video"]
    command += arguments.train_args
    started_at, windows = time.monotonic(), []
    modes = [WITHOUT, WITH] if arguments.page == "none" else [WITHOUT, WITH, LOOKED_AT]
    training = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        with VISITORS[arguments.page](address_of(training)) as look:
            time.sleep(max(0.0, started_at + arguments.skip - time.monotonic()))
            optional = optional_processes(training.pid)
            for number in range(arguments.rounds):
                # In the other order every second time: what comes first has no advantage.
                for mode in modes if number % 2 == 0 else reversed(modes):
                    look(mode == LOOKED_AT)
                    signal_all(optional, signal.SIGSTOP if mode == WITHOUT else signal.SIGCONT)
                    time.sleep(SETTLE_S)
                    begin = time.monotonic() - started_at
                    time.sleep(arguments.window)
                    windows.append((mode, number, begin, time.monotonic() - started_at))
            look(True)
            signal_all(optional, signal.SIGCONT)
        return windows
    finally:
        stop_process(training)


def signal_all(processes: Iterable[psutil.Process], number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if found := re.search(r"http://\S+token=\S+", line):
            threading.Thread(target=process.stdout.read, daemon=True).start()  # so that the pipe never fills
            return found[0]
    sys.exit("the training has no dashboard:\n" + "".join(said))


def optional_processes(pid: int) -> list[psutil.Process]:
    """Return viewer and dashboard. A viewer that has given up is worth knowing of."""
    found = children_by_role(pid, ROLES)
    if len(found) < len(ROLES):
        print("there is no viewer here: only the dashboard is measured", flush=True)
    return [process for processes in found.values() for process in processes]


def measure(path: Path, mode: str, number: int, begin: float, end: float) -> dict[str, Any]:
    """Return the rates between the first and the last line that the window holds."""
    window = [line for line in read_journal(path) if begin <= line["wall_s"] <= end]
    cores = [sum(line["cpu_by_role"].get(role, 0.0) for role in ROLES) for line in window[1:]]
    rates = rates_of(window)
    return {
        "way": mode,
        "round": number,
        **{name: round(rates[name], 1) for name in RATES},
        "cores_of_both": round(statistics.mean(cores), 3),
    }


# --- who looks at the page: each yields a function that goes on looking, or looks away ---------------------------


@contextlib.contextmanager
def frames_of(address: str) -> Iterator[Look]:
    """Ask for the next picture as soon as the last has come, at most ten times per second."""
    found = re.search(r"(/[\w-]+\?key=[\w-]+)", urllib.request.urlopen(address, timeout=60).read().decode())
    if found is None:
        sys.exit("the page has no address of pictures")
    pictures = f"{address.partition('/?')[0]}{found[0]}&after=0"
    is_looking, is_over, count = threading.Event(), threading.Event(), 0

    def fetch() -> None:
        nonlocal count
        while not is_over.wait(0.1):
            is_looking.wait()
            with contextlib.suppress(OSError):
                count += len(urllib.request.urlopen(pictures, timeout=5).read()) > 0

    thread = threading.Thread(target=fetch)
    thread.start()
    try:
        yield lambda is_on: is_looking.set() if is_on else is_looking.clear()
    finally:
        is_over.set()
        is_looking.set()
        thread.join()
        print(f"{count} pictures", flush=True)


@contextlib.contextmanager
def in_browser(address: str) -> Iterator[Look]:
    """Open the page in Chromium, on the same cores."""
    chromium = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
    if chromium is None:
        sys.exit("--page browser needs Chromium; --page frames does without")
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", f"--user-data-dir={profile}", "--remote-debugging-port=0"]
        browser = subprocess.Popen([chromium, *flags, address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        main = psutil.Process(browser.pid)

        def look(is_on: bool) -> None:
            signal_all([main, *main.children(recursive=True)], signal.SIGCONT if is_on else signal.SIGSTOP)

        try:
            yield look
        finally:
            look(True)
            stop_process(browser)
            time.sleep(0.5)  # its children still write to the profile


NOBODY = contextlib.nullcontext(lambda _is_on: None)
VISITORS = {"none": lambda _address: NOBODY, "browser": in_browser, "frames": frames_of}


def table(content: dict[str, Any]) -> str:
    figures, rows = content["windows"], []
    for mode in dict.fromkeys(figure["way"] for figure in figures):
        own = [figure for figure in figures if figure["way"] == mode]
        cells = [PAGES[content["settings"]["page"]] if mode == LOOKED_AT else mode]
        for rate in RATES:
            median = f"{statistics.median(figure[rate] for figure in own):,.0f}"
            of = "" if mode == WITHOUT else f": {quartiles(ratios(figures, mode, rate))} of those without"
            cells.append(median + of)
        rows.append([*cells, f"{statistics.median(figure['cores_of_both'] for figure in own):.3f}"])
    return markdown(("shown", "env steps/s", "updates/s", "cores of viewer and dashboard"), rows)


def ratios(figures: list[dict[str, Any]], mode: str, rate: str) -> list[float]:
    """Return a rate of one mode, as a share of that without in the same round."""
    without = {figure["round"]: figure[rate] for figure in figures if figure["way"] == WITHOUT}
    return [figure[rate] / without[figure["round"]] for figure in figures if figure["way"] == mode]


def quartiles(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.3f} (quartiles {low:.3f} to {high:.3f})"


def parse_arguments() -> argparse.Namespace:
    parser = make_training_parser(__doc__)
    parser.add_argument("env")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--window", type=float, default=4.0, help="seconds of each mode in each round")
    parser.add_argument("--skip", type=float, default=15.0, help="seconds before the first round")
    page_help = "browser: Chromium on the same cores; frames: fetch the pictures, as a page on another machine does"
    parser.add_argument("--page", choices=tuple(VISITORS), default="none", help=page_help)
    return parser.parse_args()


if __name__ == "__main__":
    main()
