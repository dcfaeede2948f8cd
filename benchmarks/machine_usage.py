"""How busy the machine is while a command runs, and what the command leaves running.

In: a command. Out: who used the cores, and the use of CPU and GPU in each second, in the same way for every system.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from session import CpuMeter, CpuUse, run_command
from spreeze.adapt.hardware import UsageMeter

ORPHANS_S = 15.0  # that what a library left running gets to end by itself
PR_SET_CHILD_SUBREAPER = 36


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
