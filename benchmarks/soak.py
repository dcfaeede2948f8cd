"""Long trainings to which all is done that a night can bring: is anything lost or left behind, does memory grow?

    python benchmarks/soak.py --minutes 90 --json soak.json

Trains tasks side by side. Every few seconds each has a fault of tests/faults/night_faults.py, drawn at random:
processes are killed and stopped, the disk gets full, files are damaged, the run is ended and resumed, its
environment fails. After each it must train again; whenever it is down, nothing that was counted may be lost and
nothing left behind. Resident memory and descriptors of each role in the first third of the time are compared with
the last: what nine of ten looks are below, because a process that was just started has not all of its memory yet, and
on a busy machine many looks find one. Exit code 1 if anything was lost, left or has grown.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from flags import make_training_parser
from formats import markdown, span
from session import ROOT, write_result

sys.path.append(str(ROOT / "tests" / "faults"))

from night_faults import FAULTS, night, small_disk
from night_training import Seen, Training

LOOK_S = 5.0
SETTLE_S = 300.0  # until replay and caches are as full as they will be, and settings are found
TOLERANCE, TOLERANCE_MB, TOLERANCE_DESCRIPTORS = 0.05, 5.0, 2
DISK = "400m"  # several times what a run needs, and filled within a second


def main() -> None:
    arguments = parse_arguments()
    # However it ends, no training goes on behind it.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        # Started by nohup. A handler is not inherited, unlike an ignored signal: trainings are to end by SIGHUP.
        signal.signal(signal.SIGHUP, lambda *_: None)
    figures = soak(arguments)
    print(table(write_result("soak", arguments, figures)))
    sys.exit(1 if figures["troubles"] else 0)


def soak(arguments: argparse.Namespace) -> dict[str, Any]:
    shared, trainings = shared_memory(), list[Training]()
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for task in arguments.tasks:
            folder = home / str(len(trainings))
            (folder / "disk").mkdir(parents=True)
            can_mount = stack.enter_context(small_disk(folder / "disk", DISK))
            trainings.append(Training(task, folder, arguments.train_args))
            stack.callback(trainings[-1].close)
        if not can_mount:
            print("mounting is not allowed here: disks stay as they are")
        faults = [fault for fault in FAULTS if can_mount or not fault.needs_mount]
        faults = [fault for fault in faults if any(word in fault.name for word in arguments.only)]
        torment(trainings, faults, arguments)
        figures = [training.figures() for training in trainings]
    troubles = [f"{training.task}: {trouble}" for training in trainings for trouble in training.troubles]
    left = [line for line in Path("/proc/mounts").read_text().splitlines() if str(home) in line]
    troubles += [f"left behind: {name}" for name in (*(shared_memory() - shared), *left)]
    third_s = 60 * arguments.minutes / 3
    memory, descriptors = (
        {
            f"{training.task}: {role}": compare(seen, third_s, unit)
            for training in trainings
            for role, seen in getattr(training, name).items()
        }
        for name, unit in (("resident", 1e6), ("descriptors", 1))
    )
    for name, (first, last, ratio) in memory.items():
        if ratio > 1 + TOLERANCE and last - first > TOLERANCE_MB:
            troubles.append(f"memory of {name} has grown from {first} MB to {last} MB")
        if descriptors[name][1] > descriptors[name][0] + TOLERANCE_DESCRIPTORS:
            troubles.append(f"descriptors of {name} have become more: {descriptors[name]}")
    times = {fault.name: [s for training in trainings for s in training.times[fault.name]] for fault in FAULTS}
    return {
        "troubles": troubles,
        "trainings": figures,
        "faults": {name: of for name, of in times.items() if of},
        "memory": memory,
        "descriptors": descriptors,
    }


def torment(trainings: list[Training], faults: list[Any], arguments: argparse.Namespace) -> None:
    """Do faults to all trainings, each in a thread of its own, until the time is up; look at them meanwhile."""
    deadline, threads = time.monotonic() + 60 * arguments.minutes, list[threading.Thread]()
    for training in trainings:
        rng = random.Random(f"{arguments.seed} {training.task}")
        words = (training, faults, rng, deadline, arguments.every, arguments.folder)
        threads.append(threading.Thread(target=night, args=words, daemon=True))
        threads[-1].start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(LOOK_S)
        for training in trainings:
            training.look()


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def compare(seen: Seen, third_s: float, unit: float) -> tuple[float, float, float]:
    """Return the 90% quantile of the first third, after the run has settled, and of the last, and their ratio."""
    first = [size for age, size in seen if SETTLE_S <= age < third_s]
    last = [size for age, size in seen if age >= 2 * third_s]
    if min(len(first), len(last)) < 2:
        return (0.0, 0.0, 1.0)
    before, after = (statistics.quantiles(of, n=10, method="inclusive")[-1] / unit for of in (first, last))
    return (round(before, 1), round(after, 1), round(after / before, 3))


def table(content: dict[str, Any]) -> str:
    rows = [[name, str(len(times)), span(times, ".0f")] for name, times in content.get("faults", {}).items()]
    faults = markdown(("fault", "times", "trained again after, s"), rows) + "\n\n" if rows else ""
    head = ("role", "memory in the first third, MB", "in the last third", "ratio", "descriptors", "in the last third")
    rows = [
        [name, *(str(figure).removesuffix(".0") for figure in (*sizes, *content["descriptors"].get(name, "--")[:2]))]
        for name, sizes in content["memory"].items()
    ]
    broken = content.get("troubles", content.get("left_behind"))
    return f"{faults}{markdown(head, rows)}\n\nLost or left behind: {'; '.join(broken) or 'nothing'}."


def parse_arguments() -> argparse.Namespace:
    parser = make_training_parser(__doc__)
    parser.add_argument("--tasks", nargs="+", default=["HalfCheetah-v5", "Faulty/Pendulum-v1"])
    parser.add_argument("--minutes", type=float, default=90.0)
    parser.add_argument("--every", type=float, default=8.0, help="seconds of training between faults, on average")
    parser.add_argument("--only", nargs="+", default=[""], help="faults whose names contain one of these words")
    parser.add_argument("--folder", type=Path, help="gets a copy of a run folder that something was lost from")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
