"""One run of Spreeze or of a peer: its command, who used the machine meanwhile, and what came out of it.

In: a system's name and the settings of the sitting. Out: a Run, the same for all systems, also if it failed.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import json
import os
import re
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from peer_environments import Peer
from sitting import CpuUse, RunCrashed, own_cpu_s, read_lines, read_result, run_command
from spreeze.host.hardware import UsageMeter

SPREEZE = re.compile(r"spreeze(?:-(?P<batch_size>[1-9]\d*))?")
# A run that hangs must not hold the benchmark for ever: evaluations, which the limit does not count, take a quarter
# of it at most, and the rest is for imports and the end of the run.
HANG_FACTOR, HANG_EXTRA_S = 1.5, 120.0
SETTLE_S = 2.0  # as peers/protocol.py has it
START_S = 20.0  # that Spreeze gets to its first update where a window is measured
ORPHANS_S = 15.0  # that what a library left running gets to end by itself
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Run:
    """One system, one seed."""

    system: str
    title: str
    seed: int
    failed: str | None = None
    """Why there are no figures."""
    reached: bool = False
    time_to_target_s: float | None = None
    """None where the target was not reached."""
    evaluation_s: float = 0.0
    """Subtracted already; 0 for Spreeze, whose evaluations run beside the training."""
    env_steps: int = 0
    updates: int = 0
    batch_size: int | None = None
    window_began_s: float | None = None
    window_s: float | None = None
    sampling_hz: float | None = None
    update_hz: float | None = None
    update_frame_hz: float | None = None
    cpu_percent: float | None = None
    """Of all cores, from window_began_s on."""
    gpu_percent: float | None = None
    cpu: CpuUse | None = None
    evaluations: list[tuple[float, int, float]] = field(default_factory=list)
    """Seconds on the clock, environment steps and mean return of each."""
    device: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(kept: dict[str, Any]) -> Run:
        """Return a run as a JSON file has it."""
        cpu = kept["cpu"]
        evaluations = [(evaluation[0], evaluation[1], evaluation[2]) for evaluation in kept["evaluations"]]
        return Run(**{**kept, "cpu": None if cpu is None else CpuUse(**cpu), "evaluations": evaluations})

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON file has it."""
        return asdict(self)


def is_spreeze(system: str) -> bool:
    """Whether a system is Spreeze: `spreeze`, or `spreeze-256` for a batch of 256."""
    return SPREEZE.fullmatch(system) is not None


def spreeze_title(system: str) -> str:
    found = SPREEZE.fullmatch(system)
    assert found is not None
    return "Spreeze" if found["batch_size"] is None else f"Spreeze, batch {found['batch_size']}"


def limit_of(system: str, settings: Mapping[str, Any]) -> float:
    """Return how long a system may run: as long as all, or as long as it was given alone."""
    shorter: Mapping[str, float] = settings.get("shorter") or {}
    return float(shorter.get(system, settings["max_seconds"]))


def run_spreeze(system: str, seed: int, arguments: argparse.Namespace) -> Run:
    """Run `spreeze train` and read its run folder."""
    return guard(Run(system, spreeze_title(system), seed), lambda run: _run_spreeze(run, arguments))


def run_peer(peer: Peer, python: Path, seed: int, arguments: argparse.Namespace) -> Run:
    """Run a peer in its own environment and read its JSON."""
    return guard(Run(peer.name, peer.title, seed), lambda run: _run_peer(run, peer, python, arguments))


def guard(run: Run, measure: Callable[[Run], Run]) -> Run:
    """Measure; a run that crashes is a result too, with the last line that it said."""
    try:
        return measure(run)
    except RunCrashed as crash:
        return replace(run, failed=str(crash).strip().splitlines()[-1])


# --- Spreeze ---------------------------------------------------------------------------------------------------


def _run_spreeze(run: Run, arguments: argparse.Namespace) -> Run:
    with tempfile.TemporaryDirectory(prefix="side-by-side-") as name:
        folder, run_dir = Path(name), Path(name) / "run"
        quietly = ["--quiet", "--fresh", "--no-dashboard", "--no-video"]  # as the peers have none
        train = [sys.executable, "-m", "spreeze", "train", arguments.env, "--run-dir", str(run_dir), *quietly]
        command = [*train, f"--seed={run.seed}", *spreeze_flags(run.system, arguments), *arguments.spreeze_args]
        cpu, usage = run_alone(command, folder, limit_of(run.system, vars(arguments)))
        summary, config = read_result(run_dir / "summary.json"), read_result(run_dir / "config.json")
        evaluations = [json.loads(line) for line in read_lines(run_dir / "evaluations.jsonl")]
        metrics = [json.loads(line) for line in read_lines(run_dir / "metrics.jsonl")]
    time_to_target_s = summary.get("time_to_target_s")
    measured = replace(
        run,
        reached=time_to_target_s is not None,
        time_to_target_s=time_to_target_s,
        env_steps=int(summary["env_steps"]),
        updates=int(summary["updates"]),
        cpu=cpu,
        evaluations=[(line["wall_s"], line["env_steps"], line["mean_return"]) for line in evaluations],
        device=str(config.get("device")),
        settings={"command": command[3:]},
        **spreeze_rates(metrics, arguments.window),
    )
    return with_usage(measured, usage)


def spreeze_flags(system: str, arguments: argparse.Namespace) -> list[str]:
    """Return the limits of a sitting, and what is pinned, as flags of `spreeze train`."""
    found = SPREEZE.fullmatch(system)
    assert found is not None
    flags = [] if arguments.device == "auto" else [f"--device={arguments.device}"]
    if arguments.window is not None:
        # What is measured must stay the same: a run that adapts would be another one at the end of the window.
        limit_s = START_S + SETTLE_S + arguments.window
        return [*flags, "--no-adapt", f"--max-seconds={limit_s}", f"--batch-size={arguments.batch_size}"]
    if found["batch_size"] is not None:
        flags.append(f"--batch-size={found['batch_size']}")
    if arguments.target_return is not None:
        flags.append(f"--target-return={arguments.target_return}")  # with "=", because it may be negative
    return [*flags, f"--max-seconds={limit_of(system, vars(arguments))}"]


def spreeze_rates(metrics: Sequence[dict[str, Any]], window_s: float | None) -> dict[str, Any]:
    """Return what was counted from SETTLE_S after the first update on, as peers/protocol.py counts."""
    first_s = next((line["wall_s"] for line in metrics if line["updates"]), None)
    counted = [line for line in metrics if first_s is not None and line["wall_s"] >= first_s + SETTLE_S]
    if window_s is not None:
        if not counted or counted[-1]["wall_s"] < counted[0]["wall_s"] + window_s:
            raise RunCrashed(f"it was not through a window of {window_s:.0f} s in the time it had")
        ends_s = counted[0]["wall_s"] + window_s
        # Up to the first line at the end of the window, as the peers' windows end.
        counted = [line for line in counted if line["wall_s"] <= ends_s] + [
            next(line for line in counted if line["wall_s"] >= ends_s)
        ]
    if len(counted) < 2:
        return {}
    first, last = counted[0], counted[-1]
    seconds = last["wall_s"] - first["wall_s"]
    update_hz = (last["updates"] - first["updates"]) / seconds
    # A batch that was adapted meanwhile counts as it was in each second.
    frames = sum(
        (line["updates"] - before["updates"]) * line["batch_size"] for before, line in itertools.pairwise(counted)
    )
    return {
        "batch_size": int(last["batch_size"]),
        "window_began_s": first["wall_s"],
        "window_s": round(seconds, 3),
        "sampling_hz": round((last["env_steps"] - first["env_steps"]) / seconds, 3),
        "update_hz": round(update_hz, 3),
        "update_frame_hz": round(frames / seconds, 3),
    }


# --- peers -----------------------------------------------------------------------------------------------------


def _run_peer(run: Run, peer: Peer, python: Path, arguments: argparse.Namespace) -> Run:
    with tempfile.TemporaryDirectory(prefix="side-by-side-") as name:
        folder, result_path = Path(name), Path(name) / "result.json"
        command = [str(python), str(peer.runner), "--json", str(result_path), f"--seed={run.seed}"]
        flags = peer_flags(peer.name, arguments)
        cpu, usage = run_alone([*command, *flags], folder, limit_of(peer.name, vars(arguments)))
        result = read_result(result_path)
    if arguments.window is not None and (result["window_s"] or 0.0) < arguments.window:
        raise RunCrashed(f"it was not through a window of {arguments.window:.0f} s in the time it had")
    names = ("reached", "time_to_target_s", "evaluation_s", "env_steps", "updates", "device", "versions", "settings")
    rates = ("window_began_s", "window_s", "sampling_hz", "update_hz", "update_frame_hz")
    measured = replace(
        run,
        cpu=cpu,
        batch_size=arguments.batch_size,
        evaluations=[(line["clock_s"], line["env_steps"], line["mean_return"]) for line in result["evaluations"]],
        **{name: result[name] for name in (*names, *rates)},
    )
    return with_usage(measured, usage)


def peer_flags(peer: str, arguments: argparse.Namespace) -> list[str]:
    """Return the settings of a sitting as flags of a peer's runner."""
    limits = ("target_return", "window", "eval_interval_s")
    names = ("env", "batch_size", "device", "envs", "updates_per_vector_step", *limits)
    given = {name: getattr(arguments, name) for name in names} | {"max_seconds": limit_of(peer, vars(arguments))}
    return [f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value is not None]


# --- the machine meanwhile -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Usage:
    """How busy the machine was, in one second of a run."""

    at_s: float
    cpu_percent: float
    gpu_percent: float | None


class UsageWatch:
    """Reads how busy the machine is, once a second, in the same way for every system."""

    def __init__(self) -> None:
        self.usage: list[Usage] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> UsageWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        meter, began_at = UsageMeter(), time.monotonic()
        while not self._ended.wait(1.0):
            self.usage.append(Usage(time.monotonic() - began_at, meter.cpu_percent(), meter.gpu()[0]))


def with_usage(run: Run, usage: Sequence[Usage]) -> Run:
    """Add the mean usage from the beginning of the window on: in a throughput run, of the window."""
    began_s = run.window_began_s or 0.0
    cpu = [second.cpu_percent for second in usage if second.at_s >= began_s]
    gpu = [second.gpu_percent for second in usage if second.at_s >= began_s and second.gpu_percent is not None]
    return replace(
        run,
        cpu_percent=round(statistics.mean(cpu), 1) if cpu else None,
        gpu_percent=round(statistics.mean(gpu), 1) if gpu else None,
    )


def run_alone(command: Sequence[str], folder: Path, limit_s: float) -> tuple[CpuUse, list[Usage]]:
    """Run a command, and wait for what it leaves running, so that it counts and takes nothing from the next run."""
    children_before, own_before_s = children_pids(), own_cpu_s()
    try:
        with UsageWatch() as watch:
            cpu = run_command(command, folder, HANG_FACTOR * limit_s + HANG_EXTRA_S)
    finally:
        end_orphans(children_before)
    late_s = own_cpu_s() - own_before_s - cpu.own_s
    cpu = replace(cpu, own_s=round(cpu.own_s + late_s, 3), others_s=round(max(0.0, cpu.others_s - late_s), 3))
    return cpu, watch.usage


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
                kill(pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.05)  # there is no wait with a limit for a process that one has adopted


def kill(pid: int) -> None:
    """End a process that has to end."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
