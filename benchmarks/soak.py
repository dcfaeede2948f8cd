"""Long trainings to which all is done that a night can bring: is anything lost or left behind, does memory grow?

    python benchmarks/soak.py --minutes 90 --json soak.json

Trains tasks side by side. Every few seconds each has a fault of `soak_faults.py`, drawn at random: processes are
killed and stopped, the disk gets full, files are damaged, the run is ended and resumed, its environment fails. After
each it must train again; whenever it is down, nothing that was counted may be lost and nothing left behind. Resident
memory and descriptors of each role in the first third of the time are compared with the last. Exit code 1 if anything
was lost, left or has grown.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flags import make_training_parser
from formats import markdown, span
from session import write_result
from soak_faults import FAULTS, Fault, drawn, small_disk
from soak_training import Training, Trouble

LOOK_S = 5.0
SETTLE_S = 60.0  # until replay and caches are as full as they will be
TOLERANCE, TOLERANCE_MB, TOLERANCE_DESCRIPTORS = 0.05, 5.0, 2
DISK = "400m"  # several times what a run needs, and filled within a second
MOST_TROUBLES = 3  # of one training, which is then given up
Seen = list[tuple[float, int]]  # figures by the age of the run in seconds
Times = dict[str, list[float]]


def main() -> None:
    arguments = parse_arguments()
    # However it ends, no training goes on behind it.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    figures = soak(arguments)
    print(table(write_result("soak", arguments, figures)))
    print("\n".join(["", *(figures["troubles"] or ["nothing lost, nothing left behind"])]))
    sys.exit(1 if figures["troubles"] else 0)


def soak(arguments: argparse.Namespace) -> dict[str, Any]:
    shared, trainings, times = shared_memory(), list[Training](), defaultdict[str, list[float]](list)
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for number, task in enumerate(arguments.tasks):
            for folder in (home / str(number), home / str(number) / "disk"):
                folder.mkdir()
            can_mount = stack.enter_context(small_disk(home / str(number) / "disk", DISK))
            training = Training(task, home / str(number), arguments.train_args)
            stack.callback(training.kill)
            trainings.append(training)
        if not can_mount:
            print("mounting is not allowed here: disks stay as they are")
        faults = [fault for fault in FAULTS if can_mount or not fault.needs_mount]
        faults = [fault for fault in faults if any(word in fault.name for word in arguments.only)]
        run_all(trainings, faults, times, arguments)
        figures = [training.figures() for training in trainings]
    troubles = [f"{training.task}: {trouble}" for training in trainings for trouble in training.troubles]
    troubles += [f"left behind: shared memory {name}" for name in shared_memory() - shared]
    troubles += [
        f"left behind: mount {line}" for line in Path("/proc/mounts").read_text().splitlines() if str(home) in line
    ]
    third = 60 * arguments.minutes / 3
    memory = {f"{t.task}: {role}": compare(seen, third, 1e6) for t in trainings for role, seen in t.resident.items()}
    handles = {
        f"{t.task}: {role}": compare(seen, third, 1) for t in trainings for role, seen in t.descriptors.items()
    }
    troubles += [
        f"memory of {name} has grown from {first} MB to {last} MB"
        for name, (first, last, ratio) in memory.items()
        if ratio > 1 + TOLERANCE and last - first > TOLERANCE_MB
    ]
    troubles += [
        f"descriptors of {name} have grown from {first:g} to {last:g}"
        for name, (first, last, _) in handles.items()
        if last > first + TOLERANCE_DESCRIPTORS
    ]
    return {"troubles": troubles, "trainings": figures, "faults": times, "memory": memory, "descriptors": handles}


def run_all(trainings: list[Training], faults: list[Fault], times: Times, arguments: argparse.Namespace) -> None:
    """Do faults to all trainings, each in a thread of its own, until the time is up; end them in order."""
    deadline, threads = time.monotonic() + 60 * arguments.minutes, list[threading.Thread]()
    for training in trainings:
        rng = random.Random(f"{arguments.seed} {training.task}")
        words = (training, drawn(faults, training.task, rng), times, rng, deadline, arguments.every, arguments.folder)
        threads.append(threading.Thread(target=torment, args=words, daemon=True))
        threads[-1].start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(LOOK_S)
        for training in trainings:
            training.look()


def torment(
    training: Training,
    faults: Iterator[Fault],
    times: Times,
    rng: random.Random,
    deadline: float,
    every_s: float,
    kept: Path | None,
) -> None:
    """Do one fault after the other to a training, note how long it took to train again, and end it."""
    name = "start"
    while len(training.troubles) < MOST_TROUBLES:
        try:
            training.wait_for_progress()
            if name == "start":
                training.wait_for_checkpoints(2)
            while time.monotonic() < deadline:
                fault = next(faults)
                name = fault.name
                if fault.apply(training, rng) is False:
                    continue
                times[name].append(round(training.wait_for_progress(), 1))
                say(training, f"{name}: {times[name][-1]} s")
                time.sleep(rng.uniform(0.5, 1.5) * every_s)
            name = "the end"
            training.process.send_signal(signal.SIGINT)
            training.end(130)
            return
        except Exception as error:  # a broken promise, or what only that can have led to
            kind = "" if isinstance(error, Trouble) else f"{type(error).__name__}: "
            training.troubles.append(f"{name}: {kind}{error}")
            say(training, training.troubles[-1])
            training.kill()
            if kept is not None:
                shutil.copytree(training.run_dir, kept / f"{training.folder.name}-{len(training.troubles)}")
            training.resume()


def say(training: Training, what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {training.task}: {what}", flush=True)


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def compare(seen: Seen, third_s: float, unit: float) -> tuple[float, float, float]:
    """Return the median of the first third, after the run has settled, and of the last, and their ratio."""
    first = [size for age, size in seen if SETTLE_S <= age < third_s]
    last = [size for age, size in seen if age >= 2 * third_s]
    if not first or not last:
        return (0.0, 0.0, 1.0)
    before, after = statistics.median(first) / unit, statistics.median(last) / unit
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
