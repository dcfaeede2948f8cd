"""What the benchmark scripts share: a command run to its end, who used the cores meanwhile, and what was measured.

In: a command, often `spreeze train`. Out: CPU seconds of the run and of everything else, its run folder, the
description for the JSON, and the file itself, renamed into place so that a crash keeps what was measured.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import json
import math
import os
import resource
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from spreeze.commands.bench import machine
from spreeze.commands.bench.solve import stop_process
from spreeze.errors import SpreezeError
from spreeze.host.files import write_whole
from spreeze.host.hardware import UsageMeter

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / "benchmarks" / "environments"
"""What is importable for every command: `--env MODULE:ID` names an environment that was made for a benchmark."""
SPREEZE = (sys.executable, "-m", "spreeze")
# Nothing that would share the machine with what is measured.
QUIET = ("--quiet", "--no-dashboard", "--no-video")
STDERR_LINES = 20
# Between an idle system's housekeeping and the whole core or more of a forgotten program.
DISTURBED_CORES = 0.1
ORPHANS_S = 15.0  # that what a library left running gets to end by itself
PR_SET_CHILD_SUBREAPER = 36
WORKER = "spreeze.supervision.worker_main"
Json = dict[str, Any]


class RunCrashed(SpreezeError):
    """A run ended with an error, hung, or left no result."""


# --- who used the cores ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CpuUse:
    """Who used the cores while a run lasted. A run that shared them with others measures the others too."""

    wall_s: float
    own_s: float
    """CPU seconds of the run and of all processes it started, and of the script that waits for it."""
    others_s: float
    """CPU seconds of everything else on the machine, and what the host took from a virtual one."""

    @property
    def others_cores(self) -> float:
        """How many cores the others kept busy, on average."""
        return self.others_s / self.wall_s


class CpuMeter:
    """Counts CPU seconds from its making on."""

    def __init__(self) -> None:
        self._began_at, self._own_s, self._all_s = time.monotonic(), own_cpu_s(), machine_cpu_s()

    def read(self) -> CpuUse:
        own_s = own_cpu_s() - self._own_s
        others_s = max(0.0, machine_cpu_s() - self._all_s - own_s)
        return CpuUse(round(time.monotonic() - self._began_at, 3), round(own_s, 3), round(others_s, 3))


def own_cpu_s() -> float:
    """Return the CPU seconds of this process, of its children that ended, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime + time.process_time()


def machine_cpu_s() -> float:
    """Return the CPU seconds, over all cores, in which the machine was not idle."""
    times = psutil.cpu_times()._asdict()
    # Guests' time is part of user time already; waiting for the disk leaves the core to others.
    return float(sum(s for name, s in times.items() if name not in ("idle", "iowait", "guest", "guest_nice")))


def disturbance(others_cores: float) -> str:
    """Describe whether others shared the cores, for the end of a line about the run."""
    return f"; DISTURBED: others used {others_cores:.2f} cores" if others_cores > DISTURBED_CORES else ""


# --- commands and run folders ----------------------------------------------------------------------------------


def run_command(command: Sequence[str], folder: Path, limit_s: float) -> CpuUse:
    """Run a command to its end and return who used the CPU; raise with the end of its stderr if it fails."""
    # A script that is ended must not leave a run behind that takes the cores from the next: leave by the `finally`.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    stderr_path, meter = folder / "stderr.txt", CpuMeter()
    with stderr_path.open("wb") as stderr:
        path = os.pathsep.join(filter(None, (str(ENVIRONMENTS), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": path}
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr, cwd=ROOT, env=environment)
        try:
            code = process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise RunCrashed(f"it did not end within {limit_s:.0f} s") from None
        finally:
            stop_process(process)  # it still runs after a timeout or Ctrl-C
    if code != 0:
        last_lines = "\n".join(stderr_path.read_text(errors="replace").splitlines()[-STDERR_LINES:])
        raise RunCrashed(f"exit code {code}; the last lines of its stderr:\n{last_lines}")
    return meter.read()


def read_result(path: Path) -> Json:
    try:
        result: Json = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RunCrashed(f"it ended without an error but left no result: {error}") from None
    return result


def read_journal(path: Path) -> list[Json]:
    """Return the whole lines of a journal; none where a run without an evaluation, say, has left no file of them."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def window_after(lines: Sequence[Json], settle_s: float, skip_s: float = 0.0) -> list[Json]:
    """Return the lines of metrics from settle_s after the first update on, without those of the first skip_s."""
    first_update_s = next((line["wall_s"] for line in lines if line["updates"]), math.inf)
    return [line for line in lines if line["wall_s"] >= max(skip_s, first_update_s + settle_s)]


def rates_of(window: Sequence[Json]) -> dict[str, float]:
    """Return what was counted between the first and the last of these lines of metrics."""
    first, last = window[0], window[-1]
    window_s = last["wall_s"] - first["wall_s"]
    # A batch that was adapted meanwhile counts as it was in each second.
    frames = sum(
        (line["updates"] - before["updates"]) * line["batch_size"] for before, line in itertools.pairwise(window)
    )
    counted = {"sampling_hz": last["env_steps"] - first["env_steps"], "update_hz": last["updates"] - first["updates"]}
    rates = {name: count / window_s for name, count in {**counted, "update_frame_hz": frames}.items()}
    return {"window_s": round(window_s, 3), **{name: round(rate, 3) for name, rate in rates.items()}}


def children_by_role(pid: int, roles: Collection[str]) -> dict[str, list[psutil.Process]]:
    """Return the processes of a run that have one of these roles. pid: its supervisor."""
    found: dict[str, list[psutil.Process]] = {}
    for child in psutil.Process(pid).children():
        with contextlib.suppress(psutil.Error):  # it has just ended
            words = child.cmdline()
            role = words[words.index(WORKER) + 1].removeprefix("split_") if WORKER in words else ""
            if role in roles:
                found.setdefault(role, []).append(child)
    return found


# --- alone on the machine --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Usage:
    """How busy the machine was, in one second of a run."""

    at_s: float
    cpu_percent: float
    gpu_percent: float | None


@contextlib.contextmanager
def watch_usage() -> Iterator[list[Usage]]:
    """Read once a second how busy the machine is, for as long as this lasts."""
    seconds: list[Usage] = []
    ended = threading.Event()

    def watch() -> None:
        meter, began_at = UsageMeter(), time.monotonic()
        while not ended.wait(1.0):
            seconds.append(Usage(time.monotonic() - began_at, meter.cpu_percent(), meter.gpu()[0]))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seconds
    finally:
        ended.set()
        thread.join()


def run_alone(command: Sequence[str], folder: Path, limit_s: float) -> tuple[CpuUse, list[Usage]]:
    """Run a command, and wait for what it leaves running, so that it counts and takes nothing from the next run."""
    children_before, meter = children_pids(), CpuMeter()
    try:
        with watch_usage() as usage:
            wall_s = run_command(command, folder, limit_s).wall_s
    finally:
        end_orphans(children_before)
    used = meter.read()
    return CpuUse(wall_s, used.own_s, used.others_s), usage


def adopt_orphans() -> None:
    """Become the parent of processes whose own parent ends, such as Ray's: only a parent sees their CPU time."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children_pids() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


def end_orphans(not_these: set[int]) -> None:
    """Wait for the processes that a run has left to this one, and end those that stay."""
    gives_up_at = time.monotonic() + ORPHANS_S
    while orphans := children_pids() - not_these:
        for pid in orphans:
            if time.monotonic() >= gives_up_at:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.05)  # there is no wait with a limit for a process that one has adopted


# --- results ---------------------------------------------------------------------------------------------------


def describe_session(benchmark: str, settings: Json) -> Json:
    """Return what a reader needs in order to repeat a measurement."""
    return {
        "benchmark": benchmark,
        "command": shlex.join(["python", *sys.orig_argv[1:]]),
        "settings": settings,
        **machine.describe_machine(),
    }


def write_result(benchmark: str, arguments: argparse.Namespace, figures: Json) -> Json:
    """Write the figures to --json, with the settings and the machine; return what a table is made of."""
    settings = {name: value for name, value in vars(arguments).items() if name not in ("json", "folder")}
    content = {**describe_session(benchmark, settings), **figures}
    write_json(arguments.json, content)
    return content


def write_json(path: Path | None, content: Json) -> None:
    """Write a result so that the file is whole at every moment; nothing without a path."""
    if path is not None:
        write_whole(path, (json.dumps(content, indent=2) + "\n").encode(), path.parent)
