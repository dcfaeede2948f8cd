"""What the way from another machine carries: rows and MB per second over links of several kinds.

    python benchmarks/cluster.py --json cluster.json

Makes two hosts of this machine (tests/cluster/hosts.py, which needs Linux namespaces), limits the link between them,
and runs `spreeze bench cluster` on one: both ends share the cores. On machines of your own, run that command alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from flags import add_kept_runs_flags, count, make_parser, positive
from formats import markdown, span
from kept_runs import KeptRuns
from session import ROOT, SPREEZE
from spreeze.errors import RunFailed

sys.path.append(str(ROOT / "tests" / "cluster"))

from hosts import Hosts, HostsFailed, why_not

LIMIT_S = 300.0
BITS = {"mbit": 1e6, "gbit": 1e9}
LINK = re.compile(r"(?:none|(\d+)(mbit|gbit)(?:/(\d+)ms)?)")


def main() -> int:
    arguments = parse_arguments()
    settings = {"seconds": arguments.seconds}
    kept = KeptRuns("cluster", settings, arguments.json, arguments.part_seconds)
    cases = [{"repeat": n, "link": link} for n, link in itertools.product(range(arguments.repeats), arguments.links)]
    if (reason := why_not()) is not None:
        print(reason, file=sys.stderr)
        return 2
    try:
        kept.fill(cases, lambda link, **_: measure(link, arguments.seconds), progress_line)
    except (HostsFailed, RunFailed) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"\n{table(kept.content)}")
    return 0


def measure(link: str, seconds: float) -> dict[str, Any]:
    """Measure all sizes of rows over one link."""
    parts = LINK.fullmatch(link)
    assert parts is not None, "the command line has let no other link through"
    with tempfile.TemporaryDirectory() as folder, Hosts() as hosts:
        head, worker = hosts.add_cluster(workers=1)
        if parts[1]:
            worker.limit(f"{parts[1]}{parts[2]}")
        if parts[3]:
            worker.lengthen(float(parts[3]))
        path = Path(folder) / "figures.json"
        words = ("bench", "cluster", "--seconds", str(seconds), "--json", str(path))
        head.run(*SPREEZE, *words, timeout_s=LIMIT_S)
        return {"figures": json.loads(path.read_text())["figures"]}


def progress_line(run: dict[str, Any]) -> str:
    rates = ", ".join(f"{each['row_bytes']} B {each['rows_hz']:,.0f} rows/s" for each in run["figures"])
    return f"repeat {run['repeat']}  {run['link']}: {rates}"


def table(content: dict[str, Any]) -> str:
    heads = ["link", "row", "rows/s", "MB/s", "share of the line", "cores of the gateway"]
    rows = []
    for link in dict.fromkeys(run["link"] for run in content["runs"]):
        of_link = [run["figures"] for run in content["runs"] if run["link"] == link]
        for figures in zip(*of_link, strict=True):
            mb_s = [each["mb_s"] for each in figures]
            line = bytes_hz(link)
            share = span([1e6 * rate / line for rate in mb_s], ".0%") if line else "-"
            rates = (span([each["rows_hz"] for each in figures], ",.0f"), span(mb_s, ",.0f"))
            cores = span([each["cpu_share"] for each in figures], ".2f")
            rows.append([name_of(link), f"{figures[0]['row_bytes']:,} B", *rates, share, cores])
    return markdown(heads, rows)


def bytes_hz(link: str) -> float | None:
    parts = LINK.fullmatch(link)
    return float(parts[1]) * BITS[parts[2]] / 8 if parts is not None and parts[1] else None


def name_of(link: str) -> str:
    parts = LINK.fullmatch(link)
    if parts is None or not parts[1]:
        return "not limited"
    name = f"{parts[1]} {parts[2].capitalize()}/s"
    return f"{name}, {parts[3]} ms there and back" if parts[3] else name


def link(text: str) -> str:
    if LINK.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"must be none, or a rate and a round trip such as 1gbit/20ms, not {text}")
    return text


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(__doc__)
    links_help = "none, RATE or RATE/ROUND-TRIP"
    parser.add_argument("--links", type=link, nargs="+", default=["none", "1gbit", "1gbit/20ms"], help=links_help)
    parser.add_argument("--seconds", type=positive, default=5.0, help="length of each measurement")
    parser.add_argument("--repeats", type=count, default=3)
    add_kept_runs_flags(parser)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
