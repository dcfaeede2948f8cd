"""Updates and environment steps a second: Spreeze beside Stable-Baselines3, on one machine, in turn.

Both run SAC with a batch of 256 on the same device, one at a time. Out: a Markdown table, and with --json every run.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from time_to_solve import (
    DISTURBED_CORES,
    ROOT,
    CpuUse,
    RunCrashed,
    describe_machine,
    read_result,
    run_command,
    set_up_peers,
)

PEER_RUNNER = ROOT / "benchmarks" / "peers" / "sb3_throughput.py"
BATCH_SIZE = 256  # the default of Stable-Baselines3
# A benchmark of Spreeze takes three measurements and a training's start; a hang is what takes far longer.
MEASUREMENTS, START_S = 3, 60.0


@dataclass(frozen=True)
class Pair:
    """One run of each, one right after the other."""

    sb3: dict[str, Any]
    spreeze: dict[str, Any]
    sb3_cpu: CpuUse
    spreeze_cpu: CpuUse

    @property
    def ratios(self) -> dict[str, float]:
        """How many times the rates of Stable-Baselines3 those of Spreeze are."""
        own = self.spreeze["training"]
        return {name: own[name] / self.sb3[name] for name in ("sampling_hz", "update_hz")}


def main() -> int:
    """Run both in turn, and report."""
    arguments = parse_arguments()
    peers_python = find_peers_python(arguments)
    context = describe_context(arguments, peers_python)
    pairs: list[Pair] = []
    for i in range(arguments.repeats):
        try:
            pairs.append(measure_pair(arguments, peers_python))
        except RunCrashed as crash:
            print(f"repeat {i} crashed: {crash}", file=sys.stderr)
            return 1
        print(progress_line(i, pairs[-1]), flush=True)
        write_json(arguments.json, context, pairs)  # after every pair: a crash keeps what was measured
    print(f"\n{markdown_table(pairs)}")
    return 0


def measure_pair(arguments: argparse.Namespace, peers_python: Path) -> Pair:
    """Measure Stable-Baselines3, then Spreeze, in a folder that is deleted afterwards."""
    limits = argparse.Namespace(max_seconds=MEASUREMENTS * arguments.seconds + START_S)
    shared = ["--seconds", str(arguments.seconds), "--device", arguments.device]
    with tempfile.TemporaryDirectory(prefix="throughput-") as name:
        folder = Path(name)
        peer_json, own_json = folder / "sb3.json", folder / "spreeze.json"
        peer = [str(peers_python), str(PEER_RUNNER), "--env", arguments.env, *shared, "--json", str(peer_json)]
        sb3_cpu = run_command(peer, limits, folder)
        own = [sys.executable, "-m", "spreeze", "bench", "throughput", arguments.env, *shared]
        own += ["--json", str(own_json), "--batch-size", str(BATCH_SIZE), *arguments.spreeze_args]
        spreeze_cpu = run_command(own, limits, folder)
        return Pair(read_result(peer_json), read_result(own_json), sb3_cpu, spreeze_cpu)


# --- report ----------------------------------------------------------------------------------------------------


def progress_line(repeat: int, pair: Pair) -> str:
    own, ratios = pair.spreeze["training"], pair.ratios
    others = max(pair.sb3_cpu.others_cores, pair.spreeze_cpu.others_cores)
    disturbed = f"; DISTURBED: others used {others:.2f} cores" if others > DISTURBED_CORES else ""
    return (
        f"repeat {repeat}  updates/s {pair.sb3['update_hz']:,.0f} and {own['update_hz']:,.0f} "
        f"({ratios['update_hz']:.2f}), env steps/s {pair.sb3['sampling_hz']:,.0f} and {own['sampling_hz']:,.0f} "
        f"({ratios['sampling_hz']:.2f}){disturbed}"
    )


def markdown_table(pairs: list[Pair]) -> str:
    """Return medians over the repeats, with the lowest and the highest."""
    rows = ["| | Stable-Baselines3 | Spreeze | ratio |", "|---|---|---|---|"]
    for name, unit in (("update_hz", "updates/s"), ("sampling_hz", "env steps/s")):
        peer, own = [pair.sb3[name] for pair in pairs], [pair.spreeze["training"][name] for pair in pairs]
        ratios = [pair.ratios[name] for pair in pairs]
        rows.append(f"| {unit} | {span(peer, ',.0f')} | {span(own, ',.0f')} | {span(ratios, '.2f')} |")
    return "\n".join(rows)


def span(figures: list[float], form: str) -> str:
    return f"{statistics.median(figures):{form}} ({min(figures):{form}} to {max(figures):{form}})"


def write_json(path: Path | None, context: dict[str, Any], pairs: list[Pair]) -> None:
    if path is None:
        return
    medians = {
        "sb3": {name: statistics.median(pair.sb3[name] for pair in pairs) for name in ("sampling_hz", "update_hz")},
        "spreeze": {
            name: statistics.median(pair.spreeze["training"][name] for pair in pairs)
            for name in ("sampling_hz", "update_hz")
        },
        "ratios": {
            name: statistics.median(pair.ratios[name] for pair in pairs) for name in ("sampling_hz", "update_hz")
        },
    }
    repeats = [{**dataclasses.asdict(pair), "ratios": pair.ratios} for pair in pairs]
    path.write_text(json.dumps({**context, "medians": medians, "repeats": repeats}, indent=2) + "\n")


def describe_context(arguments: argparse.Namespace, peers_python: Path) -> dict[str, Any]:
    """Return what a reader needs in order to repeat the measurement."""
    names = ("env", "seconds", "repeats", "device", "spreeze_args")
    return {
        "benchmark": "throughput_beside_sb3",
        "settings": {"batch_size": BATCH_SIZE, **{name: getattr(arguments, name) for name in names}},
        **describe_machine(peers_python),
    }


# --- set up ----------------------------------------------------------------------------------------------------


def find_peers_python(arguments: argparse.Namespace) -> Path:
    """Return a Python with the peers' packages, and with MuJoCo if the task needs it: installed, unless given."""
    if arguments.peers_python is not None:
        return Path(arguments.peers_python).absolute()  # not resolved: the link is what makes it a venv's
    python = set_up_peers()
    attempt = [str(python), "-c", "import gymnasium, sys; gymnasium.make(sys.argv[1])", arguments.env]
    if subprocess.run(attempt, capture_output=True).returncode != 0:
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), "gymnasium[mujoco]"])
        if done.returncode != 0:
            sys.exit(f"installing gymnasium[mujoco] for {arguments.env} failed with exit code {done.returncode}")
    return python


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Compare the throughput of Spreeze and Stable-Baselines3.")
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each measurement")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each, in turn")
    parser.add_argument("--device", default="cpu", help="where both learn")
    parser.add_argument("--peers-python", help="a Python with the peers' packages, instead of .venv-peers")
    parser.add_argument("--json", type=Path, help="also write every run to this file")
    parser.add_argument(
        "--spreeze-args",
        nargs=argparse.REMAINDER,
        default=[],
        help="for `spreeze bench throughput`, such as --min-updates-per-step 1; must come last",
    )
    arguments = parser.parse_args()
    if arguments.repeats < 1 or arguments.seconds <= 0:
        parser.error("--repeats and --seconds must be above 0")
    if arguments.json is not None and not arguments.json.absolute().parent.is_dir():
        parser.error(f"--json {arguments.json}: there is no such folder")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
