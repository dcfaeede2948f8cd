"""Spreeze compared with its peers in one session: time to a return, learning curves, or throughput.

In: a task and the systems, which take turns: for each seed, every system once, one at a time. Out: a Markdown table,
a JSON file with every run, and a picture. The peers' runners are in peers/, for continuous or for discrete actions;
each gets its packages in .venv-peers.
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import session
from comparison import (
    SOLVE,
    THROUGHPUT,
    Evaluation,
    Run,
    algo_of,
    batch_of,
    is_spreeze,
    limit_of,
    picture,
    systems_of,
    table,
)
from flags import add_kept_runs_flags, count, make_parser, named, output_file, positive, refuse, require
from formats import seconds
from kept_runs import KeptRuns, read_kept
from peer_environments import NotInstalled, Peer, find_peers, install
from spreeze.algorithms import ALGORITHMS
from spreeze.channels.spaces import Spaces
from spreeze.config.env_spec import EnvSpec
from spreeze.config.own_settings import find_algorithm
from spreeze.environments.make import make_env
from spreeze.environments.spaces import spaces_of
from spreeze.errors import SpreezeError
from spreeze.supervision.algorithm_checks import require_takes

# A run that hangs must not hold the benchmark for ever: evaluations, which the limit does not count, take a quarter
# of it at most, and the rest is for imports and the end of the run.
HANG_FACTOR, HANG_EXTRA_S = 1.5, 120.0
SETTLE_S = 2.0  # as peers/protocol.py has it
START_S = 20.0  # that Spreeze gets to its first update where a window is measured
EVALUATED_FACTOR = 1.25  # of the limit: what a peer takes at most with its evaluations
BATCH_SIZE = 256  # of the peers, where it is not what their library has tuned for the task
AROUND_S = 15.0  # of a run: what comes after it, such as Ray's end
GROWS = ("systems", "seeds")  # settings that may differ between two parts of one measurement
PEER_FIGURES = (  # of a runner's JSON, by the same names as in a Run
    *("reached", "time_to_target_s", "evaluation_s", "env_steps", "updates", "device", "versions", "settings"),
    *("window_began_s", "window_s", "sampling_hz", "update_hz", "update_frame_hz"),
)
CLOCK_NOTE = (
    "Seconds from the start of the command, imports and compilation included, to the first evaluation (mean of 10 "
    "episodes) at the target. Spreeze evaluates in a process of its own while it trains, on the same cores: nothing "
    "is subtracted. The peers stop training to evaluate: the time of their evaluations is subtracted."
)


def main() -> int:
    peers = find_peers()
    arguments = parse_arguments(peers)
    if arguments.command == "show":
        content = read_kept(arguments.file)
        is_own = content.get("benchmark") in (SOLVE, THROUGHPUT)
        require(is_own, f"{arguments.file} is not a result of side_by_side.py")
        return report(content, arguments.picture)
    session.adopt_orphans()
    kept = begin(arguments)
    pythons = find_pythons(arguments, peers)
    keys = [{"seed": seed, "system": system} for seed in range(arguments.seeds) for system in arguments.systems]
    longest = [worst_case_s(arguments, **key) for key in keys if not kept.has(**key)]
    print(f"{len(longest)} of {len(keys)} runs to do, at most {sum(longest) / 60:.0f} min")

    def run(seed: int, system: str) -> dict[str, Any]:
        if is_spreeze(system):
            return asdict(run_spreeze(system, seed, arguments))
        return asdict(run_peer(peers[system], pythons[system], seed, arguments))

    kept.fill(keys, run, partial(progress_line, arguments), partial(worst_case_s, arguments))
    return report(kept.content, arguments.picture)


def begin(arguments: argparse.Namespace) -> KeptRuns:
    """Return the runs to add to: those of the file, if there is one of the same measurement."""
    names = ("env", "batch_size", "device", "envs", "updates_per_vector_step", "eval_interval_s", "spreeze_args")
    limits = ("target_return", "max_seconds", "window")
    settings = {name: getattr(arguments, name) for name in (*names, *limits, *GROWS)}
    for name in ("shorter", "subprocesses"):  # named only where they say something
        if getattr(arguments, name):
            settings[name] = getattr(arguments, name)
    benchmark = THROUGHPUT if arguments.window else SOLVE
    kept = KeptRuns(benchmark, settings, arguments.json, arguments.part_seconds, GROWS)
    kept.content.setdefault("clock", CLOCK_NOTE)
    return kept


def find_pythons(arguments: argparse.Namespace, peers: dict[str, Peer]) -> dict[str, Path | str]:
    """Return each peer's Python, or why there is none: a peer that cannot be installed ends nothing."""
    found: dict[str, Path | str] = {}
    for name in [system for system in arguments.systems if not is_spreeze(system)]:
        if (given := arguments.python.get(name, arguments.peers_python)) is not None:
            # By its name or by its path; not resolved: the link is what makes it a venv's.
            found[name] = Path(shutil.which(given) or given).absolute()
            continue
        try:
            found[name] = install(peers[name])
        except NotInstalled as reason:
            print(f"{peers[name].title} cannot be installed: {reason}", file=sys.stderr)
            found[name] = str(reason)
    return found


def worst_case_s(arguments: argparse.Namespace, system: str, **_: int) -> float:
    return limit_of(system, vars(arguments)) * (1.0 if arguments.window else EVALUATED_FACTOR) + AROUND_S


# --- one run ---------------------------------------------------------------------------------------------------


def run_spreeze(system: str, seed: int, arguments: argparse.Namespace) -> Run:
    run = Run(system, spreeze_title(system), seed)
    train = ["train", arguments.env, *session.QUIET, "--fresh", f"--seed={seed}", *spreeze_flags(system, arguments)]
    train += arguments.spreeze_args

    def figures(run_dir: Path) -> dict[str, Any]:
        summary, config = session.read_result(run_dir / "summary.json"), session.read_result(run_dir / "config.json")
        reached_s = summary.get("time_to_target_s")
        return {
            "reached": reached_s is not None,
            "time_to_target_s": reached_s,
            "env_steps": int(summary["env_steps"]),
            "updates": int(summary["updates"]),
            "evaluations": evaluations_of(session.read_journal(run_dir / "evaluations.jsonl"), "wall_s"),
            "device": str(config.get("device")),
            "settings": {"command": train},
            **spreeze_rates(session.read_journal(run_dir / "metrics.jsonl"), arguments.window),
        }

    return measure(run, [*session.SPREEZE, *train, "--run-dir"], figures, arguments)


def spreeze_title(system: str) -> str:
    algo, batch_size = algo_of(system), batch_of(system)
    return ", ".join(["Spreeze", *([algo.upper()] if algo else []), *([f"batch {batch_size}"] if batch_size else [])])


def run_peer(peer: Peer, python: Path | str, seed: int, arguments: argparse.Namespace) -> Run:
    """Run a peer in its own environment and read its JSON. python: a text says why there is none."""
    run = Run(peer.name, peer.title, seed, batch_size=arguments.batch_size)
    if isinstance(python, str):
        return replace(run, failed=f"not installed: {python}")

    def figures(path: Path) -> dict[str, Any]:
        result = session.read_result(path)
        if arguments.window is not None and (result["window_s"] or 0.0) < arguments.window:
            raise session.RunCrashed(f"it was not through a window of {arguments.window:.0f} s in the time it had")
        told = {name: value for name, value in result.items() if name in PEER_FIGURES}
        chosen = {"batch_size": result["settings"]["batch_size"]}
        return {**told, **chosen, "evaluations": evaluations_of(result["evaluations"], "clock_s")}

    command = [str(python), str(peer.runner), f"--seed={seed}", *peer_flags(peer.name, arguments), "--json"]
    return measure(run, command, figures, arguments)


def measure(
    run: Run, command: list[str], figures: Callable[[Path], dict[str, Any]], arguments: argparse.Namespace
) -> Run:
    """Run a command that writes to the path behind it. A run that crashes is a result too, with its last line."""
    limit_s = HANG_FACTOR * limit_of(run.system, vars(arguments)) + HANG_EXTRA_S
    try:
        with tempfile.TemporaryDirectory(prefix="side-by-side-") as folder:
            path = Path(folder) / "result"
            cpu, usage = session.run_alone([*command, str(path)], Path(folder), limit_s)
            measured = replace(run, cpu=cpu, **figures(path))
    except session.RunCrashed as crash:
        return replace(run, failed=str(crash).strip().splitlines()[-1])
    # The usage from the beginning of the window on: in a throughput run, of the window.
    counted = [second for second in usage if second.at_s >= (measured.window_began_s or 0.0)]
    gpu = [second.gpu_percent for second in counted if second.gpu_percent is not None]
    return replace(
        measured,
        cpu_percent=round(statistics.mean(second.cpu_percent for second in counted), 1) if counted else None,
        gpu_percent=round(statistics.mean(gpu), 1) if gpu else None,
    )


def evaluations_of(lines: Sequence[dict[str, Any]], clock: str) -> list[Evaluation]:
    return [(line[clock], line["env_steps"], line["mean_return"]) for line in lines]


def spreeze_flags(system: str, arguments: argparse.Namespace) -> list[str]:
    """Return the limits of a session, and what is pinned, as flags of `spreeze train`."""
    flags = [] if arguments.device == "auto" else [f"--device={arguments.device}"]
    if algo := algo_of(system):
        flags.append(f"--algo={algo}")
    if batch_size := batch_of(system) or (arguments.window and arguments.batch_size):
        flags.append(f"--batch-size={batch_size}")
    if arguments.window is not None:
        # What is measured must stay the same: a run that adapts would be another one at the end of the window.
        return [*flags, "--no-adapt", f"--max-seconds={START_S + SETTLE_S + arguments.window}"]
    if arguments.target_return is not None:
        flags.append(f"--target-return={arguments.target_return}")  # with "=", because it may be negative
    return [*flags, f"--max-seconds={limit_of(system, vars(arguments))}"]


def peer_flags(peer: str, arguments: argparse.Namespace) -> list[str]:
    """Return the settings of a session as flags of a peer's runner."""
    limits = ("target_return", "window", "eval_interval_s")
    names = ("env", "batch_size", "device", "envs", "updates_per_vector_step", *limits)
    given = {name: getattr(arguments, name) for name in names} | {"max_seconds": limit_of(peer, vars(arguments))}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value is not None]
    return [*flags, *["--subprocesses"][: arguments.subprocesses]]


def spreeze_rates(metrics: Sequence[dict[str, Any]], window_s: float | None) -> dict[str, Any]:
    """Return what was counted from SETTLE_S after the first update on, as peers/protocol.py counts."""
    counted = session.window_after(metrics, SETTLE_S)
    if window_s is not None:
        if not counted or counted[-1]["wall_s"] < counted[0]["wall_s"] + window_s:
            raise session.RunCrashed(f"it was not through a window of {window_s:.0f} s in the time it had")
        ends_s = counted[0]["wall_s"] + window_s
        # Up to the first line at the end of the window, as the peers' windows end.
        through = [line for line in counted if line["wall_s"] <= ends_s]
        counted = [*through, next(line for line in counted if line["wall_s"] >= ends_s)]
    if len(counted) < 2:
        return {}
    begins = {"batch_size": int(counted[-1]["batch_size"]), "window_began_s": counted[0]["wall_s"]}
    return {**begins, **session.rates_of(counted)}


# --- report ----------------------------------------------------------------------------------------------------


def report(content: dict[str, Any], picture_path: Path | None) -> int:
    """Print the table, draw the picture; 1 if no run has figures."""
    measured = [run for system in systems_of(content) for run in system.measured]
    if content["runs"]:
        print(f"\n{table(content)}")
    if content["benchmark"] == SOLVE:
        print(f"\n{CLOCK_NOTE}")
        if picture_path is not None and measured:
            try:
                picture(content, picture_path)
            except ImportError:  # a machine without matplotlib measures all the same
                print(f"no {picture_path} without matplotlib: `show FILE --picture {picture_path}` draws it later")
    if disturbed := sum(run.cpu is not None and run.cpu.others_cores > session.DISTURBED_CORES for run in measured):
        print(f"\n{disturbed} of {len(measured)} runs shared the CPU with others: re-measure on an idle machine.")
    return 0 if measured else 1


def progress_line(arguments: argparse.Namespace, kept: dict[str, Any]) -> str:
    run = Run.of(kept)
    begins = f"{run.title:<21} seed {run.seed}  "
    if run.failed is not None or run.cpu is None:
        return f"{begins}failed: {run.failed}"
    disturbed = session.disturbance(run.cpu.others_cores)
    if arguments.window:
        return f"{begins}{run.update_hz:,.0f} updates/s, {run.sampling_hz:,.0f} env steps/s{disturbed}"
    best = max((mean for _, _, mean in run.evaluations), default=math.nan)
    reached = seconds(run.time_to_target_s, limit_of(run.system, vars(arguments)))
    done = f"{run.env_steps:,} env steps, {run.updates:,} updates, best return {best:.1f}"
    return f"{begins}{reached:>7} s  {done}, {run.evaluation_s:.1f} s of evaluation subtracted{disturbed}"


# --- the command line ------------------------------------------------------------------------------------------


def parse_arguments(peers: dict[str, Peer]) -> argparse.Namespace:
    parser = make_parser("Spreeze and its peers, in turn, on one machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    solve = commands.add_parser("solve", help="time to a return, or learning curves without --target-return")
    solve.add_argument("--env", default="Pendulum-v1")
    solve.add_argument("--target-return", type=float, help="end each run there; without it all run to the limit")
    solve.add_argument("--max-seconds", type=positive, default=120.0, help="limit of each run, without evaluations")
    shorter_help = "a limit of one system's own, below --max-seconds: for one whose curve is known by then"
    shorter = {"action": "append", "default": [], "type": named_seconds, "metavar": "NAME=SECONDS"}
    solve.add_argument("--shorter", help=shorter_help, **shorter)
    solve.add_argument("--seeds", type=count, default=3, help="how many, from 0")
    solve.add_argument("--eval-interval-s", type=positive, default=1.0, help="between peers' evaluations")
    solve.add_argument("--picture", type=output_file, help="draw the learning curves here")
    solve.set_defaults(window=None)
    throughput = commands.add_parser("throughput", help="updates and environment steps per second")
    throughput.add_argument("--env", default="HalfCheetah-v5")
    throughput.add_argument("--window", type=positive, default=10.0, help="seconds, from 2 s after the first update")
    throughput.add_argument("--repeats", dest="seeds", type=count, default=3, help="runs of each system")
    throughput.add_argument("--max-seconds", type=positive, default=60.0, help="to the end of the window")
    throughput.set_defaults(target_return=None, eval_interval_s=None, picture=None, shorter=[])
    for command in (solve, throughput):
        add_shared(command, peers)
    again = commands.add_parser("show", help="print the table of a JSON file again, and draw its picture")
    again.add_argument("file", type=Path)
    again.add_argument("--picture", type=output_file)
    arguments = parser.parse_args()
    if arguments.command != "show":
        check(arguments, peers)
    return arguments


def add_shared(command: argparse.ArgumentParser, peers: dict[str, Peer]) -> None:
    names = f"spreeze, spreeze-256 (with that batch), spreeze-sac (with that algorithm), {', '.join(peers)}"
    systems_help = f"{names}; by default spreeze and the peers for actions such as those of the environment"
    command.add_argument("--systems", nargs="+", metavar="NAME", help=systems_help)
    batch_help = f"of the peers, {BATCH_SIZE} or what is tuned for a task; in throughput, of spreeze too"
    command.add_argument("--batch-size", type=count, help=batch_help)
    command.add_argument("--envs", type=count, help="environments that each peer steps together")
    command.add_argument("--updates-per-vector-step", type=count, help="of each peer; by default one an environment")
    subprocesses_help = "a process for each environment of Stable-Baselines3 and SBX"
    command.add_argument("--subprocesses", action="store_true", help=subprocesses_help)
    command.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where all of them learn")
    command.add_argument("--peers-python", help="a Python with the packages of all peers, instead of .venv-peers")
    python = {"action": "append", "default": [], "type": named, "metavar": "NAME=PATH"}
    command.add_argument("--python", help="the same for one peer", **python)
    add_kept_runs_flags(command)
    more_help = "for `spreeze train`; must come last"
    command.add_argument("--spreeze-args", nargs=argparse.REMAINDER, default=[], help=more_help)


def named_seconds(text: str) -> tuple[str, float]:
    name, seconds = named(text)
    return name, positive(seconds)


def check(arguments: argparse.Namespace, peers: dict[str, Peer]) -> None:
    """Refuse what cannot be; make dictionaries of NAME=VALUE."""
    max_s, window = arguments.max_seconds, arguments.window
    is_fitting = window is None or window + SETTLE_S + START_S <= max_s
    require(is_fitting, f"--window {window} does not fit --max-seconds {max_s:g}")
    for system in arguments.systems or []:
        is_known = system in peers or (is_spreeze(system) and algo_of(system) in (None, *ALGORITHMS))
        known = f"spreeze, spreeze-N, {', '.join(f'spreeze-{algo}' for algo in ALGORITHMS)}, {', '.join(peers)}"
        require(is_known, f"--systems {system}: there are {known}")
    spaces = find_spaces(arguments.env)
    fill_in(arguments, peers, spaces)
    systems = arguments.systems
    for system in systems:
        require_fits(system, peers, spaces, arguments.env)
    for name, limit_s in arguments.shorter:
        is_limit = name in systems and limit_s < max_s
        require(is_limit, f"--shorter {name}: must be one of {', '.join(systems)}, and below --max-seconds")
    for name, _ in arguments.python:
        require(name in peers, f"--python {name}: there are {', '.join(peers)}")
    arguments.shorter, arguments.python = dict(arguments.shorter), dict(arguments.python)


def find_spaces(env: str) -> Spaces:
    """Return the spaces of the environment, which Spreeze's Python makes once."""
    sys.path.append(str(session.ENVIRONMENTS))
    try:
        made = make_env(EnvSpec(env))
        spaces = spaces_of(made, env)
        made.close()
    except SpreezeError as error:
        refuse(f"--env {env}: {error}")
    return spaces


def fill_in(arguments: argparse.Namespace, peers: dict[str, Peer], spaces: Spaces) -> None:
    """Choose what the command line leaves open and the kind of actions decides."""
    fitting = [name for name, peer in peers.items() if peer.actions == spaces.action_kind]
    arguments.systems = arguments.systems or ["spreeze", *fitting]
    is_tuned = arguments.window is None and spaces.action_kind == "discrete"
    if arguments.batch_size is None and not is_tuned:
        arguments.batch_size = BATCH_SIZE


def require_fits(system: str, peers: dict[str, Peer], spaces: Spaces, env: str) -> None:
    """Refuse a system that does not take the actions of the environment."""
    if system in peers:
        actions = peers[system].actions
        takes = f"--systems {system} is for {actions} actions, and those of {env} are {spaces.action_kind}"
        fitting = [name for name, peer in peers.items() if peer.actions == spaces.action_kind]
        require(actions == spaces.action_kind, f"{takes}; for these there are {', '.join(['spreeze', *fitting])}")
    elif algo := algo_of(system):
        try:
            require_takes(find_algorithm(algo), algo, spaces, env)
        except SpreezeError as error:
            refuse(f"--systems {system}: {error}")


if __name__ == "__main__":
    sys.exit(main())
