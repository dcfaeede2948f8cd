"""A long training in which processes are killed at random: is memory flat, is anything left behind?

    python benchmarks/soak.py --minutes 30 --json soak.json

Every few seconds one process of the run is killed (SIGKILL): a sampler, the learner, the evaluator, the viewer or the
dashboard. Resident memory of each role and the supervisor's descriptors are looked at every few seconds; the first
third of the time is compared with the last. Afterwards nothing may be left: no process, no shared memory, no file
that a run does not keep. Exit code 1 if something was, or if memory has grown.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import psutil

from flags import make_training_parser
from formats import markdown
from session import SPREEZE, children_by_role, write_result

ROLES = {"sampler", "learner", "evaluator", "viewer", "dashboard"}
MARK = "SPREEZE_SOAK"
LOOK_S = 5.0
SETTLE_S = 60.0  # until replay and caches are as full as they will be
YOUNG_S = 20.0  # a process that has just been started has not its size yet
TOLERANCE = 0.05
Seen = list[tuple[float, int]]  # figures by the age of the run in seconds
KEPT = (
    r"config\.json|summary\.json|(metrics|evaluations|events)\.jsonl"
    r"|weights/policy-\d+\.safetensors|best/(policy\.safetensors|evaluation\.json)|logs/[\w-]+\.log"
    r"|checkpoint/(manifest-\d+\.json|state-\w+-\d+\.safetensors|replay/rows-\d+\.f32)"
    r"|tensorboard/events\.\S+"
)


def main() -> None:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        figures = soak(Path(folder) / "run", arguments)
    print(json.dumps({name: value for name, value in figures.items() if name != "memory"}, indent=2))
    print(table(write_result("soak", arguments, figures)))
    grown = [role for role, (_, _, ratio) in figures["memory"].items() if ratio > 1 + TOLERANCE]
    sys.exit(1 if grown or figures["left_behind"] or figures["exit_code"] != 130 else 0)


def soak(run_dir: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    mark, rng = uuid.uuid4().hex, random.Random(arguments.seed)
    shared = shared_memory()
    command = [*SPREEZE, "train", arguments.env, "--run-dir", str(run_dir)]
    command += ["--replay-rows", "100000", "--checkpoint-interval-s", "10", "--no-video", *arguments.train_args]
    process = subprocess.Popen(command, env={**os.environ, MARK: mark}, stdout=subprocess.DEVNULL)
    began = time.monotonic()
    resident: dict[str, Seen] = defaultdict(list)
    descriptors: Seen = []
    kills: Counter[str] = Counter()
    kill_at = began + SETTLE_S
    while process.poll() is None and (age := time.monotonic() - began) < 60 * arguments.minutes:
        time.sleep(LOOK_S)
        look(process.pid, age, resident, descriptors)
        if time.monotonic() >= kill_at:
            kill_at = time.monotonic() + rng.uniform(0.5, 1.5) * arguments.kill_every
            kills[kill_one(process.pid, rng)] += 1
    process.send_signal(signal.SIGINT)
    exit_code = process.wait(60)
    left = [f"process {name}" for name in survivors(mark)]
    left += [f"shared memory {name}" for name in shared_memory() - shared]
    files = [str(path.relative_to(run_dir)) for path in run_dir.rglob("*") if path.is_file()]
    left += [f"file {name}" for name in files if not re.fullmatch(KEPT, name)]
    summary = json.loads((run_dir / "summary.json").read_text())
    third = 60 * arguments.minutes / 3
    return {
        "exit_code": exit_code,
        "kills": dict(kills),
        "updates": summary["updates"],
        "env_steps": summary["env_steps"],
        "left_behind": left,
        "descriptors": {
            "first third": max((count for age, count in descriptors if SETTLE_S <= age < third), default=0),
            "last third": max((count for age, count in descriptors if age >= 2 * third), default=0),
        },
        "folder_bytes": sum(path.stat().st_size for path in run_dir.rglob("*") if path.is_file()),
        "memory": {role: compare(seen, third) for role, seen in resident.items()},
    }


def look(pid: int, age: float, resident: dict[str, Seen], descriptors: Seen) -> None:
    with contextlib.suppress(psutil.Error):  # it ended while we looked
        supervisor = psutil.Process(pid)
        resident["supervisor"].append((age, supervisor.memory_info().rss))
        descriptors.append((age, supervisor.num_fds()))
        for role, children in children_by_role(pid, ROLES).items():
            old = [child for child in children if time.time() - child.create_time() > YOUNG_S]
            resident[role] += [(age, child.memory_info().rss) for child in old]


def kill_one(pid: int, rng: random.Random) -> str:
    by_role = children_by_role(pid, ROLES)
    role = rng.choice(sorted(by_role))
    rng.choice(by_role[role]).kill()
    return role


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def survivors(mark: str) -> list[str]:
    # Of a process that may not be looked at, or ends meanwhile, environ is None.
    found = [process.info for process in psutil.process_iter(["environ", "cmdline"])]
    return [" ".join(info["cmdline"] or ()) for info in found if (info["environ"] or {}).get(MARK) == mark]


def compare(seen: Seen, third: float) -> tuple[float, float, float]:
    """Return the median MB of the first third, after the run has settled, and of the last, and their ratio."""
    first = [size for age, size in seen if SETTLE_S <= age < third]
    last = [size for age, size in seen if age >= 2 * third]
    if not first or not last:
        return (0.0, 0.0, 1.0)
    before, after = statistics.median(first) / 1e6, statistics.median(last) / 1e6
    return (round(before, 1), round(after, 1), round(after / before, 3))


def table(content: dict[str, Any]) -> str:
    rows = [
        [role, str(content["kills"].get(role, "-")), str(first), str(last), f"{ratio:.3f}"]
        for role, (first, last, ratio) in content["memory"].items()
    ]
    head = ("role", "kills", "memory in the first third, MB", "in the last third", "ratio")
    first, last = (content["descriptors"][third] for third in ("first third", "last third"))
    said = f"Open descriptors of the supervisor, at most: {first} in the first third, {last} in the last. "
    said += f"Left behind: {', '.join(content['left_behind']) or 'nothing'}."
    return f"{markdown(head, rows)}\n\n{said}"


def parse_arguments() -> argparse.Namespace:
    parser = make_training_parser(__doc__)
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--kill-every", type=float, default=15.0, help="seconds, on average")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
