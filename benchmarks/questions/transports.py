"""Shared memory and other transports between processes: rows per second, latency, and the CPU time of the reader.

    python benchmarks/questions/transports.py --json transports.json --picture transports.png

Spreeze's ring and queue, a pipe, a Unix socket and a TCP socket carry the same rows from 1, 2 and 4 writer processes
to one reader, in turn. Every row is checked. Out: a Markdown table, and with --json and --picture all of it.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from transport_ends import TRANSPORTS
from transport_rig import measure_taking_alone, measure_transport

from charts import draw_medians, new_figure, save
from flags import add_kept_runs_flags, count, make_parser, picture_file, positive
from formats import machine_text, markdown, span
from kept_runs import KeptRuns
from session import disturbance
from spreeze.commands.bench.curves import colour_of, dress

NAMES = {
    "none": "no transport",
    "ring": "shared-memory ring",
    "queue": "multiprocessing queue",
    "pipe": "pipe",
    "unix": "Unix socket",
    "tcp": "TCP socket",
}


def main() -> int:
    arguments = parse_arguments()
    settings = {"seconds": arguments.seconds, "paced_hz": arguments.paced_hz}
    kept = KeptRuns("transports", settings, arguments.json, arguments.part_seconds)
    run = partial(measure, arguments)
    return kept.complete(cases(arguments), run, progress_line, table, picture, arguments.picture)


def cases(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Return what is measured: within a repeat, transports take turns for each size and number of writers."""
    found = []
    for repeat, row_bytes in itertools.product(range(arguments.repeats), arguments.row_bytes):
        names = [(0, "none"), *itertools.product(arguments.writers, TRANSPORTS)]
        size = {"repeat": repeat, "row_bytes": row_bytes}
        found += [{**size, "writers": writers, "transport": name} for writers, name in names]
    return found


def measure(arguments: argparse.Namespace, row_bytes: int, writers: int, transport: str, **_: int) -> dict[str, Any]:
    if transport == "none":
        return measure_taking_alone(row_bytes, arguments.seconds)
    return measure_transport(transport, row_bytes, writers, arguments.seconds, arguments.paced_hz)


def progress_line(run: dict[str, Any]) -> str:
    modes, what = run["modes"], f"repeat {run['repeat']}  {size_text(run['row_bytes']):>6}  {NAMES[run['transport']]}"
    if run["transport"] == "none":
        return f"{what}: {modes['blocks']['reader_cpu_s']:.3g} CPU s a million rows"
    latency_us = modes["paced"]["latency_median_us"]
    return (
        f"{what}, writers {run['writers']}: {modes['blocks']['rows_hz']:,.0f} rows/s in blocks, "
        f"{modes['rows']['rows_hz']:,.0f} one by one, {latency_us:,.0f} us on the way"
        f"{disturbance(run['others_cores'])}"
    )


def table(content: dict[str, Any]) -> str:
    runs = content["runs"]
    counts = sorted({run["writers"] for run in runs if run["writers"]})
    most = counts[-1] if counts else 0
    heads = ["row", "transport", *(f"rows/s, {count} writer{'s' * (count > 1)}" for count in counts)]
    heads += [f"MB/s, {most} writers", f"rows/s one by one, {most} writers"]
    heads += ["latency of a row, us: median, 99th percentile", "reader's CPU s a million rows"]
    heads += ["writer's CPU s a million rows", "an empty look, us"]
    rows = []
    for row_bytes in sorted({run["row_bytes"] for run in runs}):
        for transport in NAMES:
            of_this = [run for run in runs if run["row_bytes"] == row_bytes and run["transport"] == transport]
            if of_this:
                rows.append([size_text(row_bytes), NAMES[transport], *_cells(of_this, counts, transport)])
    return markdown(heads, rows)


def _cells(runs: list[dict[str, Any]], counts: list[int], transport: str) -> list[str]:
    if transport == "none":
        taking = span(figures(runs, "blocks", "reader_cpu_s"), ".3g")
        return [*(["-"] * (len(counts) + 3)), taking, "-", "-"]
    of_most = [run for run in runs if run["writers"] == counts[-1]]

    def cell(mode: str, name: str, form: str, of: list[dict[str, Any]] = of_most) -> str:
        return span(figures(of, mode, name), form)

    by_count = [[run for run in runs if run["writers"] == count] for count in counts]
    return [
        *(cell("blocks", "rows_hz", ",.0f", of_count) for of_count in by_count),
        cell("blocks", "mb_s", ",.0f"),
        cell("rows", "rows_hz", ",.0f"),
        f"{cell('paced', 'latency_median_us', ',.0f')}; {cell('paced', 'latency_99_us', ',.0f')}",
        cell("blocks", "reader_cpu_s", ".3g"),
        cell("blocks", "writer_cpu_s", ".3g"),
        cell("paced", "empty_look_us", ".2g"),
    ]


def figures(runs: list[dict[str, Any]], mode: str, name: str) -> list[float]:
    return [run["modes"][mode][name] for run in runs]


def size_text(row_bytes: int) -> str:
    return f"{row_bytes / 1000:g} KB" if row_bytes >= 1000 else f"{row_bytes} B"


PANELS = (
    ("blocks", "mb_s", "MB/s in blocks, flat out"),
    ("rows", "mb_s", "MB/s one by one, flat out"),
    ("paced", "latency_median_us", "latency of a row, us (dotted: 99th percentile)"),
    ("blocks", "reader_cpu_s", "reader's CPU s a million rows, in blocks"),
)


def picture(content: dict[str, Any], path: Path) -> None:
    """Draw each figure against the number of writers, a column for each size of a row."""
    runs = [run for run in content["runs"] if run["transport"] != "none"]
    sizes, counts = sorted({run["row_bytes"] for run in runs}), sorted({run["writers"] for run in runs})
    figure = new_figure(3.6 * len(sizes), 2.5 * len(PANELS))
    for row, (mode, name, words) in enumerate(PANELS):
        for column, row_bytes in enumerate(sizes):
            axes = figure.add_subplot(len(PANELS), len(sizes), row * len(sizes) + column + 1)
            for i, transport in enumerate(TRANSPORTS):
                of_this = [r for r in runs if (r["row_bytes"], r["transport"]) == (row_bytes, transport)]
                _draw(axes, of_this, mode, name, {"color": colour_of(i), "marker": "o", "label": NAMES[transport]})
                if name == "latency_median_us":
                    _draw(axes, of_this, mode, "latency_99_us", {"color": colour_of(i), "linestyle": ":"})
            axes.set_yscale("log")
            axes.set_xscale("log", base=2)
            axes.set_xticks(counts, [str(count) for count in counts])
            title = f"rows of {size_text(row_bytes)}" if row == 0 else ""
            x, legend = ("writer processes" if row == len(PANELS) - 1 else ""), "best" if row == column == 0 else None
            dress(axes, x, words if column == 0 else "", title, legend=legend)
    save(figure, path, f"{machine_text(content['machine'])}; median of the repeats, lines from lowest to highest")


def _draw(axes: Any, runs: list[dict[str, Any]], mode: str, name: str, style: dict[str, Any]) -> None:
    counts = sorted({run["writers"] for run in runs})
    groups = [figures([run for run in runs if run["writers"] == count], mode, name) for count in counts]
    draw_medians(axes, counts, groups, markersize=3, linewidth=1, elinewidth=0.7, **style)


def row_size(text: str) -> int:
    if not text.isdecimal() or int(text) < 32 or int(text) % 4:
        raise argparse.ArgumentTypeError(f"must be a multiple of 4, and at least 32, not {text}")
    return int(text)


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--row-bytes", type=row_size, nargs="+", default=[100, 3000, 100_000], help="sizes of a row")
    parser.add_argument("--writers", type=count, nargs="+", default=[1, 2, 4], help="writer processes")
    parser.add_argument("--seconds", type=positive, default=0.4, help="length of each measurement")
    parser.add_argument("--paced-hz", type=positive, default=1000.0, help="rows per second where latency is measured")
    parser.add_argument("--repeats", type=count, default=3)
    add_kept_runs_flags(parser)
    parser.add_argument("--picture", type=picture_file, help="draw what was measured: .png, .svg or .pdf")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
