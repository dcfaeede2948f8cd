"""A long training on two other machines that are killed, cut off and hung: is a row lost uncounted, or stored twice?

    python benchmarks/cluster_faults.py --minutes 5 --faults 20 --json cluster-faults.json

The machines are hosts of this one (tests/cluster/hosts.py, which needs Linux namespaces). Every row of the task says
where it is from, with a checksum. At the end: rows stored and rows counted as lost are compared with rows sampled;
what is left on any host is listed. Exit code 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flags import count, make_parser, output_file, positive
from formats import markdown, number, span
from session import ROOT, write_result

sys.path.append(str(ROOT / "tests" / "cluster"))

from cluster_training import Training
from hosts import Host, Hosts, why_not
from numbered_rows import steps_made, stored_rows

HERE = ROOT / "tests" / "cluster"
LONG_CUT_S, CUT_S, SHORT_CUT_S = 60.0, 8.0, 1.5  # above and below what the head waits for a word of a machine
BACK_S = 90.0
MORE_ROWS = 20


@dataclass(frozen=True)
class Fault:
    """What is done to a machine."""

    name: str
    apply: Callable[[Host, Host], None]
    """To a machine, or to the head; the machine is to be used again from its return on."""
    share: int = 2


@dataclass(frozen=True)
class Suffered:
    """A fault that was done. Times are in seconds."""

    at_s: float
    fault: str
    machine: str
    back_s: float | None
    """From the end of the fault, or from when Ray runs again where it had ended, to the first new rows of the
    machine; None if none have come."""
    ray_s: float
    """Of the fault, what Ray needs to start again on the machine, and what it lasts."""


def kill_agent(worker: Host, _: Host) -> None:
    worker.kill("ray::AgentShell")


def kill_sampler(worker: Host, _: Host) -> None:
    worker.kill("worker_main sampler")


def hang_agent(worker: Host, _: Host) -> None:
    worker.kill("ray::AgentShell", signal.SIGSTOP)


def cut(worker: Host, _: Host) -> None:
    cut_for(worker, CUT_S)


def cut_for_long(worker: Host, _: Host) -> None:
    cut_for(worker, LONG_CUT_S)


def cut_shortly(worker: Host, _: Host) -> None:
    cut_for(worker, SHORT_CUT_S)


def cut_for(worker: Host, seconds: float) -> None:
    worker.cut()
    time.sleep(seconds)  # the fault itself
    worker.restore()


def kill_raylet(worker: Host, _: Host) -> None:
    worker.kill_raylet()
    worker.restart_ray()
    worker.wait_for_ray()


def lose_power(worker: Host, _: Host) -> None:
    worker.die()
    worker.boot()
    worker.restart_ray()
    worker.wait_for_ray()


def kill_gateway(_: Host, head: Host) -> None:
    head.kill("worker_main gateway")


FAULTS = (
    Fault("agent killed", kill_agent),
    Fault("sampler killed", kill_sampler),
    Fault("agent hung", hang_agent),
    Fault(f"cut off for {LONG_CUT_S:g} s", cut_for_long, share=1),
    Fault(f"cut off for {CUT_S:g} s", cut, share=2),
    Fault(f"cut off for {SHORT_CUT_S:g} s", cut_shortly),
    Fault("raylet killed", kill_raylet),
    Fault("power lost", lose_power),
    Fault("gateway killed", kill_gateway, share=1),
)


def main() -> int:
    arguments = parse_arguments()
    if (reason := why_not()) is not None:
        print(reason, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory() as folder, Hosts() as hosts:
        figures = torment(hosts, Path(folder), arguments)
    print(table(write_result("cluster-faults", arguments, figures)))
    print("\n".join(figures["troubles"]))
    return 1 if figures["troubles"] else 0


def torment(hosts: Hosts, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train, do all faults at even intervals, and count."""
    head, *workers = hosts.add_cluster(workers=2)
    training, rng = Training(head, folder), random.Random(arguments.seed)
    for worker in workers:
        training.wait_for_rows(worker.name)
    began_at, suffered = time.monotonic(), list[Suffered]()
    faults = [fault for fault in FAULTS if not arguments.only or fault.name in arguments.only]
    chosen = rng.choices(faults, [fault.share for fault in faults], k=arguments.faults)
    for place, fault in enumerate(chosen):
        due_at = began_at + 60 * arguments.minutes * (place + 0.5) / arguments.faults
        time.sleep(max(0.0, due_at - time.monotonic()))  # until the next fault
        worker = rng.choice(workers)
        fault_at = time.monotonic()
        fault.apply(worker, head)
        ended_at = time.monotonic()
        back_s = wait_until_back(training, worker, ended_at)
        suffered.append(Suffered(fault_at - began_at, fault.name, worker.name, back_s, ended_at - fault_at))
        print(f"{fault_at - began_at:6.1f} s  {worker.name}: {fault.name}, back after {number(back_s, '.1f')} s")
    time.sleep(max(0.0, began_at + 60 * arguments.minutes - time.monotonic()))  # until the end
    training.stop()
    return judge(training, [head, *workers], suffered)


def wait_until_back(training: Training, worker: Host, since: float) -> float | None:
    """Wait until rows of a machine arrive that were sampled after the fault."""
    seen = len(training.journal("metrics"))
    while len(training.journal("metrics")) < seen + 2 and training.process.poll() is None:
        if worker.revive_ray():
            since = time.monotonic()
        time.sleep(0.1)  # what had arrived before the fault is in the next line
    before = training.arrived(worker.name)
    while training.arrived(worker.name) < before + MORE_ROWS:
        if time.monotonic() > since + BACK_S or training.process.poll() is not None:
            return None
        if worker.revive_ray():
            since = time.monotonic()
        time.sleep(0.1)  # metrics have a line per second
    return time.monotonic() - since


def judge(training: Training, all_hosts: list[Host], suffered: list[Suffered]) -> dict[str, Any]:
    """Compare what was stored with what was sampled."""
    stored, cluster = stored_rows(training.run_dir), training.summary["cluster"]
    made = steps_made(training.counts)
    troubles = stored.troubles()
    if stored.rows + cluster["rows_lost"] != cluster["rows_sampled"]:
        troubles.append(f"{stored.rows} stored and {cluster['rows_lost']} lost are not {cluster['rows_sampled']}")
    if stored.rows != training.summary["env_steps"]:
        troubles.append(f"{stored.rows} rows are stored, env_steps is {training.summary['env_steps']}")
    troubles += [f"{source}: more rows than steps" for source, at in stored.steps.items() if len(at) > made[source]]
    known = {machine["name"] for machine in training.journal("metrics")[-1]["cluster"]["machines"]}
    troubles += [f"taken for another machine: {name}" for name in sorted(known - {host.name for host in all_hosts})]
    troubles += [f"{each.machine} has not come back after: {each.fault}" for each in suffered if each.back_s is None]
    try:
        training.wait_until_gone(all_hosts)
    except AssertionError as error:
        troubles.append(str(error))
    for host in all_hosts:
        left = [name for name in host.run("ls", "/run").split() if "spreeze" in name]
        troubles += [f"left behind on {host.name}: {name}" for name in left]
    return {
        "rows_stored": stored.rows,
        "rows_lost": cluster["rows_lost"],
        "rows_sampled": cluster["rows_sampled"],
        "rows_repeated": cluster["rows_repeated"],
        "steps_made": sum(steps for (machine, *_), steps in made.items() if machine),
        "faults": [dataclasses.asdict(each) for each in suffered],
        "troubles": troubles,
    }


def table(content: dict[str, Any]) -> str:
    faults = content["faults"]
    rows = [
        [name, f"{len(of_name)}", span([each["back_s"] for each in of_name if each["back_s"] is not None], ".1f")]
        for name in dict.fromkeys(each["fault"] for each in faults)
        if (of_name := [each for each in faults if each["fault"] == name])
    ]
    return markdown(["fault", "times", "rows again after, s"], rows)


def totals(content: dict[str, Any]) -> str:
    names = {
        "steps_made": "steps that environments have made",
        "rows_sampled": "rows sampled, as reported to the head",
        "rows_stored": "of these, stored",
        "rows_lost": "counted as lost",
        "rows_repeated": "arrived twice and left out",
    }
    return markdown(["", "rows"], [[text, f"{content[name]:,}"] for name, text in names.items()])


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--minutes", type=positive, default=5.0)
    parser.add_argument("--faults", type=count, default=20)
    names = [fault.name for fault in FAULTS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="FAULT", help=f"of these: {', '.join(names)}")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of faults")
    parser.add_argument("--json", type=output_file, help="write the figures to this file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
