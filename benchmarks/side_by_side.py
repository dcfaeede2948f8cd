"""Spreeze beside its peers, in one sitting: time to a return, learning curves, or throughput.

In: a task and the systems, which take turns: for each seed, every system once, one at a time. Out: a Markdown table,
a JSON file with every run, and a picture. The peers' runners are in peers/; each gets its packages in .venv-peers.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from peer_environments import NotInstalled, Peer, find_peers, install
from side_by_side_report import CLOCK_NOTE, SOLVE, THROUGHPUT, disturbed_note, picture, table, time_text
from side_by_side_runs import SETTLE_S, START_S, Run, adopt_orphans, is_spreeze, limit_of, run_peer, run_spreeze
from sitting import describe_sitting, disturbance, write_json

EVALUATED_FACTOR = 1.25  # of the limit: what a peer takes at most with its evaluations
AROUND_S = 15.0  # of a run: what comes after it, such as Ray's end
GROWS = ("systems", "seeds")
# What may differ between two parts of one measurement, among settings and in the description of a machine.
MAY_DIFFER = (*GROWS, "memory_bytes")


def main() -> int:
    """Run every system on every seed that is missing, and report."""
    peers = find_peers()
    arguments = parse_arguments(peers)
    if arguments.command == "show":
        return show(arguments)
    adopt_orphans()
    content = begin(arguments)
    pythons = find_pythons(arguments, peers)
    wanted = [(seed, system) for seed in range(arguments.seeds) for system in arguments.systems]
    missing = [pair for pair in wanted if not is_there(content, *pair)]
    longest_s = worst_case_s(arguments, [system for _, system in missing])
    print(f"{len(missing)} of {len(wanted)} runs to do, at most {longest_s / 60:.0f} min")
    began_at = time.monotonic()
    for seed, system in missing:
        if time.monotonic() - began_at + worst_case_s(arguments, [system]) > arguments.part_seconds:
            print(f"this part's time is up; the same command does the rest ({system}, seed {seed}, is next)")
            break
        run = measure(system, seed, arguments, peers, pythons)
        add_run(content, run)
        print(progress_line(run, arguments), flush=True)
        write_json(arguments.json, content)  # after every run: a crash or Ctrl-C keeps what was measured
    return report(content, arguments.picture)


def measure(
    system: str, seed: int, arguments: argparse.Namespace, peers: dict[str, Peer], pythons: dict[str, Path | str]
) -> Run:
    """Run one system once."""
    if is_spreeze(system):
        return run_spreeze(system, seed, arguments)
    python = pythons[system]
    if isinstance(python, str):
        return Run(system, peers[system].title, seed, failed=f"not installed: {python}")
    return run_peer(peers[system], python, seed, arguments)


def find_pythons(arguments: argparse.Namespace, peers: dict[str, Peer]) -> dict[str, Path | str]:
    """Return each peer's Python, or why there is none: a peer that cannot be installed ends nothing."""
    found: dict[str, Path | str] = {}
    for name in arguments.systems:
        given = arguments.python.get(name, arguments.peers_python)
        if is_spreeze(name):
            continue
        if given is not None:
            # By its name or by its path; not resolved: the link is what makes it a venv's.
            found[name] = Path(shutil.which(given) or given).absolute()
            continue
        try:
            found[name] = install(peers[name])
        except NotInstalled as reason:
            print(f"{peers[name].title} cannot be installed: {reason}", file=sys.stderr)
            found[name] = str(reason)
    return found


def worst_case_s(arguments: argparse.Namespace, systems: list[str]) -> float:
    """Return how long a run of each system may take, at its limit."""
    factor = 1.0 if arguments.window else EVALUATED_FACTOR
    return sum(limit_of(system, vars(arguments)) * factor + AROUND_S for system in systems)


# --- the JSON --------------------------------------------------------------------------------------------------


def begin(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the content to add runs to: that of the file, if there is one of the same measurement."""
    names = ("env", "batch_size", "device", "envs", "updates_per_vector_step", "eval_interval_s", "spreeze_args")
    limits = ("target_return", "max_seconds", "window")
    settings = {name: getattr(arguments, name) for name in (*names, *limits, *GROWS)}
    if arguments.shorter:  # named only where it says something
        settings["shorter"] = arguments.shorter
    head = describe_sitting(THROUGHPUT if arguments.window else SOLVE, settings)
    part = {name: head[name] for name in ("date", "git_commit", "git_dirty", "command")}
    if arguments.json is None or not arguments.json.exists():
        return {**head, "clock": CLOCK_NOTE, "parts": [part], "runs": []}
    kept = read_content(arguments.json)
    for name in ("benchmark", "machine", "settings"):
        before, now = (fixed(content[name]) for content in (kept, head))
        if before != now:
            refuse(f"--json {arguments.json} is of another measurement ({name}: {before}): name another file")
    systems = list(dict.fromkeys([*kept["settings"]["systems"], *arguments.systems]))
    settings = {**settings, "systems": systems, "seeds": max(kept["settings"]["seeds"], arguments.seeds)}
    return {**kept, "settings": settings, "parts": [*kept["parts"], part]}


def fixed(described: Any) -> Any:
    """Return what must be the same in all parts of a measurement."""
    return {k: v for k, v in described.items() if k not in MAY_DIFFER} if isinstance(described, dict) else described


def read_content(path: Path) -> dict[str, Any]:
    """Read a result of this script, or say what is wrong with it."""
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        refuse(f"{path} cannot be read: {error}")
    if content.get("benchmark") not in (SOLVE, THROUGHPUT):
        refuse(f"{path} is not a result of side_by_side.py")
    return content


def is_there(content: dict[str, Any], seed: int, system: str) -> bool:
    """Whether a run has been measured; one that failed is tried again."""
    return any((kept["seed"], kept["system"], kept["failed"]) == (seed, system, None) for kept in content["runs"])


def add_run(content: dict[str, Any], run: Run) -> None:
    """Add a run in place of one of the same system and seed that failed."""
    others = [kept for kept in content["runs"] if (kept["seed"], kept["system"]) != (run.seed, run.system)]
    content["runs"] = [*others, run.to_json()]


# --- report ----------------------------------------------------------------------------------------------------


def show(arguments: argparse.Namespace) -> int:
    """Show a result again, from its file alone."""
    return report(read_content(arguments.file), arguments.picture)


def report(content: dict[str, Any], picture_path: Path | None) -> int:
    """Print the table, draw the picture; 1 if no run has figures."""
    measured = [kept for kept in content["runs"] if kept["failed"] is None]
    if content["runs"]:
        print(f"\n{table(content)}")
    if content["benchmark"] == SOLVE:
        print(f"\n{CLOCK_NOTE}")
        if picture_path is not None and measured:
            print(f"\n{draw(content, picture_path)}")
    if note := disturbed_note(content):
        print(f"\n{note}")
    return 0 if measured else 1


def draw(content: dict[str, Any], path: Path) -> str:
    """Draw the picture, and say where it is; a machine without matplotlib measures all the same."""
    if importlib.util.find_spec("matplotlib") is None:
        return f"no {path} without matplotlib: `side_by_side.py show FILE --picture {path}` draws it later"
    picture(content, path)
    return f"picture: {path}"


def progress_line(run: Run, arguments: argparse.Namespace) -> str:
    begins = f"{run.title:<18} seed {run.seed}  "
    if run.failed is not None or run.cpu is None:
        return f"{begins}failed: {run.failed}"
    disturbed = disturbance(run.cpu.others_cores)
    if arguments.window:
        return f"{begins}{run.update_hz:,.0f} updates/s, {run.sampling_hz:,.0f} env steps/s{disturbed}"
    best = max((mean for _, _, mean in run.evaluations), default=math.nan)
    reached = time_text(run.time_to_target_s, limit_of(run.system, vars(arguments)))
    return (
        f"{begins}{reached:>7} s  {run.env_steps:,} env steps, "
        f"{run.updates:,} updates, {len(run.evaluations)} evaluations (best {best:.1f}), "
        f"{run.evaluation_s:.1f} s of evaluation subtracted{disturbed}"
    )


# --- the command line ------------------------------------------------------------------------------------------


def refuse(reason: str) -> Any:
    """End with one line and exit code 2."""
    print(f"side_by_side.py: {reason}", file=sys.stderr)
    raise SystemExit(2)


def parse_arguments(peers: dict[str, Peer]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Spreeze beside its peers, in turn, on one machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    solve = commands.add_parser("solve", help="time to a return, or learning curves without --target-return")
    solve.add_argument("--env", default="Pendulum-v1")
    solve.add_argument("--target-return", type=float, help="end each run there; without it all run to the limit")
    solve.add_argument("--max-seconds", type=float, default=120.0, help="limit of each run, without evaluations")
    solve.add_argument(
        "--shorter",
        action="append",
        default=[],
        metavar="NAME=SECONDS",
        help="a limit of one system's own, below --max-seconds: for one whose curve is known by then",
    )
    solve.add_argument("--seeds", type=int, default=3, help="how many, from 0")
    solve.add_argument("--eval-interval-s", type=float, default=1.0, help="of training, between peers' evaluations")
    solve.add_argument("--picture", type=Path, help="draw the learning curves here")
    throughput = commands.add_parser("throughput", help="updates and environment steps a second")
    throughput.add_argument("--env", default="HalfCheetah-v5")
    throughput.add_argument("--window", type=float, default=10.0, help="seconds, from 2 s after the first update")
    throughput.add_argument("--repeats", dest="seeds", type=int, default=3, help="runs of each system")
    throughput.add_argument("--max-seconds", type=float, default=60.0, help="to the end of the window")
    for command in (solve, throughput):
        add_shared(command, peers)
    again = commands.add_parser("show", help="print the table of a JSON file again, and draw its picture")
    again.add_argument("file", type=Path)
    again.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    if arguments.command != "show":
        complete(arguments, peers)
    return arguments


def add_shared(command: argparse.ArgumentParser, peers: dict[str, Peer]) -> None:
    """Add the flags of both measurements."""
    command.add_argument(
        "--systems",
        nargs="+",
        default=["spreeze", *peers],
        metavar="NAME",
        help=f"spreeze, spreeze-256 (with that batch), {', '.join(peers)}; by default spreeze and all peers",
    )
    command.add_argument("--batch-size", type=int, default=256, help="of the peers; in throughput, of Spreeze too")
    command.add_argument("--envs", type=int, help="environments that each peer steps together")
    command.add_argument("--updates-per-vector-step", type=int, help="of each peer; by default one an environment")
    command.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where all of them learn")
    command.add_argument("--peers-python", help="a Python with the packages of all peers, instead of .venv-peers")
    command.add_argument("--python", action="append", default=[], metavar="NAME=PATH", help="the same for one peer")
    command.add_argument(
        "--json",
        type=Path,
        help="write every run to this file; if it is there, of the same measurement, only missing runs are added",
    )
    command.add_argument(
        "--part-seconds", type=float, default=math.inf, help="start no run that could end later than this"
    )
    command.add_argument(
        "--spreeze-args", nargs=argparse.REMAINDER, default=[], help="for `spreeze train`; must come last"
    )


def complete(arguments: argparse.Namespace, peers: dict[str, Peer]) -> None:
    """Check the settings, and fill in those of the other measurement."""
    if arguments.command == "solve":
        arguments.window = None
    else:
        arguments.target_return = arguments.eval_interval_s = arguments.picture = None
        arguments.shorter = []
        if arguments.window + SETTLE_S + START_S > arguments.max_seconds:
            refuse(f"--window {arguments.window:g} does not fit --max-seconds {arguments.max_seconds:g}")
    limits = ("max_seconds", "window", "eval_interval_s", "part_seconds")
    for name in (*limits, "seeds", "batch_size", "envs", "updates_per_vector_step"):
        value = getattr(arguments, name)
        if value is not None and not value > 0:
            refuse(f"--{name.replace('_', '-')} must be above 0, not {value}")
    for system in arguments.systems:
        if system not in peers and not is_spreeze(system):
            refuse(f"--systems {system}: there are spreeze, spreeze-N and {', '.join(peers)}")
    arguments.shorter = dict(read_shorter(word, arguments) for word in arguments.shorter)
    named = [word.partition("=") for word in arguments.python]
    for name, _, path in named:
        if name not in peers or not path:
            refuse(f"--python {name}: say NAME=PATH with one of {', '.join(peers)}")
    arguments.python = {name: path for name, _, path in named}
    for option, path in (("--json", arguments.json), ("--picture", arguments.picture)):
        if path is not None and not path.absolute().parent.is_dir():
            refuse(f"{option} {path}: there is no such folder")


def read_shorter(word: str, arguments: argparse.Namespace) -> tuple[str, float]:
    """Return the system and the seconds of one --shorter."""
    name, _, seconds = word.partition("=")
    try:
        limit_s = float(seconds)
    except ValueError:
        limit_s = math.nan
    if name not in arguments.systems or not 0 < limit_s < arguments.max_seconds:
        systems = ", ".join(arguments.systems)
        refuse(f"--shorter {word}: say NAME=SECONDS with one of {systems}, below --max-seconds")
    return name, limit_s


if __name__ == "__main__":
    sys.exit(main())
