"""Time from the start of the command until a return is reached: Spreeze beside Stable-Baselines3 and SBX.

The systems run in turn for each seed, one at a time. Out: a Markdown table, and with --json every run.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from spreeze.bench import machine

ROOT = Path(__file__).resolve().parent.parent
PEERS = ("sb3", "sbx")
PEER_PACKAGES = ("torch", "stable-baselines3", "sbx-rl")
PEER_RUNNER = ROOT / "benchmarks" / "peers" / "sb3_family.py"
SYSTEM_NAMES = {"spreeze": "Spreeze", "sb3": "Stable-Baselines3", "sbx": "SBX"}
# A run that hangs must not hold the benchmark for ever; the factor leaves room for the peers' evaluations,
# which their limit does not count, and the rest for imports and the end of the run.
HANG_FACTOR, HANG_EXTRA_S = 3.0, 120.0
STDERR_LINES = 20
# Between an idle system's housekeeping and the whole core or more of a forgotten program.
DISTURBED_CORES = 0.1
CLOCK_NOTE = (
    "Seconds from the start of the command, imports and compilation included, to the end of the first "
    "evaluation (mean of 10 episodes) at the target. Spreeze evaluates in a process of its own beside the "
    "training, on the same cores: nothing is subtracted. Stable-Baselines3 and SBX stop training to "
    "evaluate: the time of their evaluations is subtracted."
)


class RunCrashed(Exception):
    """A run ended with an error, hung, or left no result."""


@dataclass(frozen=True)
class CpuUse:
    """Who used the cores while a run lasted. A run that shared them with others measures the others too."""

    wall_s: float
    own_s: float
    """CPU seconds of the run and of all processes it started."""
    others_s: float
    """CPU seconds of everything else on the machine, and what the host took from a virtual one."""

    @property
    def others_cores(self) -> float:
        """How many cores the others kept busy, on average."""
        return self.others_s / self.wall_s


@dataclass(frozen=True)
class Run:
    """One system, one seed."""

    system: str
    seed: int
    reached: bool
    time_to_target_s: float
    """The limit where the target was not reached."""
    wall_s: float
    evaluation_s: float
    """Subtracted already; 0 for Spreeze, whose evaluations run beside the training."""
    env_steps: int
    updates: int
    evaluations: list[tuple[float, int, float]]
    """Wall seconds, environment steps and mean return of each."""
    cpu: CpuUse


@dataclass(frozen=True)
class Median:
    """A median over seeds; a bound where runs that did not reach the target decide it."""

    seconds: float
    is_bound: bool

    def __str__(self) -> str:
        return f"{'> ' if self.is_bound else ''}{self.seconds:.1f}"


def main() -> int:
    """Run every system on every seed, and report."""
    arguments = parse_arguments()
    peers_python = find_peers_python(arguments)
    context = describe_context(arguments, peers_python)
    runs: list[Run] = []
    for seed in range(arguments.seeds):
        for system in arguments.systems:
            try:
                run = run_system(system, seed, arguments, peers_python)
            except RunCrashed as crash:
                print(f"{system} seed {seed} crashed: {crash}", file=sys.stderr)
                return 1
            runs.append(run)
            print(progress_line(run), flush=True)
            # After every run: a crash or Ctrl-C after half an hour keeps what was measured.
            write_json(arguments.json, context, runs)
    print(f"\n{markdown_table(runs, arguments.systems)}\n\n{CLOCK_NOTE}")
    disturbed_runs = sum(run.cpu.others_cores > DISTURBED_CORES for run in runs)
    if disturbed_runs:
        print(f"\n{disturbed_runs} of {len(runs)} runs shared the CPU with others: measure again on an idle machine.")
    return 0


# --- runs ------------------------------------------------------------------------------------------------------


def run_system(system: str, seed: int, arguments: argparse.Namespace, peers_python: Path | None) -> Run:
    """Run one system once, in a folder that is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="time-to-solve-") as folder:
        if system == "spreeze":
            return run_spreeze(seed, arguments, Path(folder))
        assert peers_python is not None
        return run_peer(system, seed, arguments, peers_python, Path(folder))


def run_spreeze(seed: int, arguments: argparse.Namespace, folder: Path) -> Run:
    """Run `spreeze train` and read its run folder."""
    run_dir = folder / "run"
    command = [
        sys.executable,
        "-m",
        "spreeze",
        "train",
        arguments.env,
        "--run-dir",
        str(run_dir),
        "--quiet",
        "--fresh",
        "--no-dashboard",  # as the peers have none
        "--no-video",
    ]
    cpu = run_command([*command, *limit_flags(seed, arguments), *arguments.spreeze_args], arguments, folder)
    evaluations = [json.loads(line) for line in read_lines(run_dir / "evaluations.jsonl")]
    result = read_result(run_dir / "summary.json")
    result["evaluations"] = [(e["wall_s"], e["env_steps"], e["mean_return"]) for e in evaluations]
    return make_run("spreeze", seed, result, cpu, arguments.max_seconds)


def run_peer(system: str, seed: int, arguments: argparse.Namespace, peers_python: Path, folder: Path) -> Run:
    """Run a peer in the environment of the peers and read its JSON."""
    result_path = folder / "result.json"
    command = [str(peers_python), str(PEER_RUNNER), system, "--env", arguments.env, "--json", str(result_path)]
    cpu = run_command([*command, *limit_flags(seed, arguments)], arguments, folder)
    return make_run(system, seed, read_result(result_path), cpu, arguments.max_seconds)


def make_run(system: str, seed: int, result: dict[str, Any], cpu: CpuUse, limit_s: float) -> Run:
    """Build a run from a result; Spreeze's summary and the peers' JSON use the same names."""
    reached = result["time_to_target_s"] is not None
    return Run(
        system=system,
        seed=seed,
        reached=reached,
        time_to_target_s=float(result["time_to_target_s"]) if reached else limit_s,
        wall_s=float(result["wall_s"]),
        evaluation_s=float(result.get("evaluation_s", 0.0)),
        env_steps=int(result["env_steps"]),
        updates=int(result["updates"]),
        evaluations=[tuple(evaluation) for evaluation in result["evaluations"]],
        cpu=cpu,
    )


def limit_flags(seed: int, arguments: argparse.Namespace) -> list[str]:
    """Return what all systems are told, in the flags they share."""
    return [
        f"--seed={seed}",
        f"--target-return={arguments.target_return}",  # with "=", because it may be negative
        f"--max-seconds={arguments.max_seconds}",
    ]


def run_command(command: list[str], arguments: argparse.Namespace, folder: Path) -> CpuUse:
    """Run a command to its end and return who used the CPU; raise with the end of its stderr if it fails."""
    stderr_path = folder / "stderr.txt"
    limit_s = HANG_FACTOR * arguments.max_seconds + HANG_EXTRA_S
    began_at, own_before_s, all_before_s = time.monotonic(), own_cpu_s(), machine_cpu_s()
    with stderr_path.open("wb") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr, cwd=ROOT)
        try:
            code = process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise RunCrashed(f"it did not end within {limit_s:.0f} s") from None
        finally:
            stop_process(process)  # it still runs after a timeout or Ctrl-C
    if code != 0:
        last_lines = "\n".join(read_lines(stderr_path)[-STDERR_LINES:])
        raise RunCrashed(f"exit code {code}; the last lines of its stderr:\n{last_lines}")
    own_s = own_cpu_s() - own_before_s
    others_s = max(0.0, machine_cpu_s() - all_before_s - own_s)
    return CpuUse(round(time.monotonic() - began_at, 3), round(own_s, 3), round(others_s, 3))


def own_cpu_s() -> float:
    """Return the CPU seconds of all runs so far: of children that ended, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def machine_cpu_s() -> float:
    """Return the CPU seconds, over all cores, in which the machine was not idle."""
    times = psutil.cpu_times()._asdict()
    # Guests' time is part of user time already; waiting for the disk leaves the core to others.
    return float(sum(s for name, s in times.items() if name not in ("idle", "iowait", "guest", "guest_nice")))


def stop_process(process: subprocess.Popen[bytes]) -> None:
    """End a process in order, so that it ends its own children, and at once if it does not."""
    process.terminate()  # does nothing to one that ended
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def read_result(path: Path) -> dict[str, Any]:
    try:
        result: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RunCrashed(f"it ended without an error but left no result: {error}") from None
    return result


def read_lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.exists() else []


# --- report ----------------------------------------------------------------------------------------------------


def progress_line(run: Run) -> str:
    best = max((mean for _, _, mean in run.evaluations), default=math.nan)
    subtracted = f", {run.evaluation_s:.1f} s of evaluation subtracted" if run.system in PEERS else ""
    cores = run.cpu.others_cores
    disturbed = f"; DISTURBED: others used {cores:.2f} cores" if cores > DISTURBED_CORES else ""
    return (
        f"{SYSTEM_NAMES[run.system]:<18} seed {run.seed}  {time_text(run):>7} s  {run.env_steps} env steps, "
        f"{run.updates} updates, {len(run.evaluations)} evaluations (best {best:.1f}){subtracted}{disturbed}"
    )


def time_text(run: Run) -> str:
    return f"{'' if run.reached else '> '}{run.time_to_target_s:.1f}"


def markdown_table(runs: Sequence[Run], systems: Sequence[str]) -> str:
    """Return a row for each system; runs that missed the target count as the limit and show as "> limit"."""
    rows = [
        "| system | median s | all seeds | env steps (median) | updates (median) | ratio to ours |",
        "|---|---|---|---|---|---|",
    ]
    own = [run for run in runs if run.system == "spreeze"]
    for system in systems:
        of_system = [run for run in runs if run.system == system]
        cells = (
            SYSTEM_NAMES[system],
            str(median_time(of_system)),
            ", ".join(time_text(run) for run in of_system),
            f"{statistics.median(run.env_steps for run in of_system):,.0f}",
            f"{statistics.median(run.updates for run in of_system):,.0f}",
            ratio_text(median_time(of_system), median_time(own) if own else None),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def median_time(runs: Sequence[Run]) -> Median:
    ordered = sorted(runs, key=lambda run: (run.time_to_target_s, not run.reached))
    # Of an even number the median is the mean of the middle two: a bound as soon as the later one is.
    return Median(statistics.median(run.time_to_target_s for run in runs), not ordered[len(runs) // 2].reached)


def ratio_text(median: Median, own: Median | None) -> str:
    if own is None or (median.is_bound and own.is_bound):
        return "-"  # nothing to divide by, or two bounds, whose ratio says nothing
    sign = "> " if median.is_bound else "< " if own.is_bound else ""
    return f"{sign}{median.seconds / own.seconds:.2f}"


def write_json(path: Path | None, context: dict[str, Any], runs: Sequence[Run]) -> None:
    if path is None:
        return
    content = {**context, "runs": [dataclasses.asdict(run) for run in runs]}
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(content, indent=2) + "\n")
    aside.replace(path)


# --- what was measured, and where ------------------------------------------------------------------------------


def describe_context(arguments: argparse.Namespace, peers_python: Path | None) -> dict[str, Any]:
    """Return what a reader needs in order to repeat the measurement."""
    names = ("env", "target_return", "seeds", "max_seconds", "systems", "spreeze_args")
    return {
        "benchmark": "time_to_solve",
        "clock": CLOCK_NOTE,
        "settings": {name: getattr(arguments, name) for name in names},
        **describe_machine(peers_python),
    }


def describe_machine(peers_python: Path | None) -> dict[str, Any]:
    """Return when, where and of what code something was measured."""
    return {
        **machine.describe_machine(),
        "git_commit": git("rev-parse", "HEAD"),
        "git_dirty": bool(git("status", "--porcelain")),
        "peer_versions": peer_versions(peers_python),
    }


def git(*words: str) -> str | None:
    """Return what git says, or None in a tree that git does not know."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def peer_versions(peers_python: Path | None) -> dict[str, str]:
    """Ask the peers' Python, which also says what its JAX runs on: without a plugin that is the CPU."""
    if peers_python is None:
        return {}
    packages = ("torch", "jax", "stable-baselines3", "sbx-rl", "gymnasium", "numpy")
    question = (
        "import importlib.metadata, jax, json, platform, torch\n"
        f"found = {{name: importlib.metadata.version(name) for name in {packages}}}\n"
        "found.update(python=platform.python_version(), jax_backend=jax.default_backend(),\n"
        "             torch_backend='cuda' if torch.cuda.is_available() else 'cpu')\n"
        "print(json.dumps(found))"
    )
    done = subprocess.run([str(peers_python), "-c", question], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{peers_python} cannot import the peers' packages:\n{done.stderr.strip()}")
    versions: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return versions


# --- the peers' environment ------------------------------------------------------------------------------------


def find_peers_python(arguments: argparse.Namespace) -> Path | None:
    """Return the Python that has the peers' packages, installing them first where that is needed."""
    if not set(PEERS) & set(arguments.systems):
        return None
    if arguments.peers_python is not None:
        return Path(arguments.peers_python).absolute()  # not resolved: the link is what makes it a venv's
    return set_up_peers()


def set_up_peers() -> Path:
    """Create .venv-peers, or bring it up to date with constraints.txt; as the Makefile does for .venv."""
    environment, constraints = ROOT / ".venv-peers", ROOT / "constraints.txt"
    python, stamp = environment / "bin" / "python", environment / "installed"
    if stamp.exists() and stamp.stat().st_mtime >= constraints.stat().st_mtime:
        return python
    if not re.search(r"^torch\s*==", constraints.read_text(), re.MULTILINE):
        # Left open, pip takes the newest build, with gigabytes of CUDA libraries.
        sys.exit("constraints.txt pins no torch: add 'torch==VERSION', or name a Python with --peers-python")
    print(f"installing {', '.join(PEER_PACKAGES)} into {environment.name}", flush=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        subprocess.run([*pip, "-c", str(constraints), *PEER_PACKAGES], check=True)
    except subprocess.CalledProcessError as error:
        sys.exit(f"setting up {environment.name} failed: {error}")
    stamp.touch()
    return python


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Time Spreeze, Stable-Baselines3 and SBX to a target return.")
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--target-return", type=float, default=-200.0)
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds, from 0")
    parser.add_argument("--max-seconds", type=float, default=180.0, help="limit of each run")
    parser.add_argument("--systems", nargs="+", choices=tuple(SYSTEM_NAMES), default=list(SYSTEM_NAMES))
    parser.add_argument("--peers-python", help="a Python with the peers' packages, instead of .venv-peers")
    parser.add_argument("--json", type=Path, help="also write every run to this file")
    parser.add_argument(
        "--spreeze-args", nargs=argparse.REMAINDER, default=[], help="for `spreeze train`; must come last"
    )
    arguments = parser.parse_args()
    if arguments.seeds < 1:
        parser.error(f"--seeds must be at least 1, not {arguments.seeds}")
    if arguments.json is not None and not arguments.json.absolute().parent.is_dir():
        parser.error(f"--json {arguments.json}: there is no such folder")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
