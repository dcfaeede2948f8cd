"""What each component of Spreeze is worth: one switch at a time, on and off, in turn within every repeat.

    python benchmarks/ablations.py transport --json transport.json --picture transport.png

Every run is a real `spreeze train` of fixed length: docs/ablations.md says what is compared, and how.
Out: a line for each run, a Markdown table, with --json every run and with --picture a picture.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
import textwrap
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from ablation.launch import start_text
from ablation.training import measure, probe
from ablation.variants import ABLATIONS, Ablation, Column, Hardware, Variant, baseline_of
from charts import draw_medians, new_figure, save
from flags import add_kept_runs_flags, count, make_parser, named, picture_file, positive, require
from formats import in_order, machine_text, markdown, median_of, span
from kept_runs import KeptRuns
from session import Json, disturbance
from spreeze.adapt.plan import usable_gpu_count
from spreeze.commands.bench.curves import colour_of, dress
from spreeze.host.hardware import this_machine, usable_cores

PROBE_SECONDS = 4.0
PROBE_SIZES = {"observation_size": 17, "action_size": 6}  # of HalfCheetah-v5: rows and policies of a usual size
# Of a run's processes and a probe's, in addition to what they measure: only for the estimate that is printed.
END_S, PROBE_START_S = 1.5, 3.5
PANEL_INCHES = (3.6, 3.5)
TICK_LETTERS = 14
OFFSET = 0.08  # between series that share a place
NOT_SETTINGS = ("json", "picture", "repeats", "part_seconds")


def main() -> int:
    hardware = Hardware(usable_cores(), usable_gpu_count(this_machine()))
    arguments = parse_arguments(hardware)
    ablation = ABLATIONS[arguments.ablation]
    variants = ablation.variants(arguments, hardware)
    settings = {name: value for name, value in vars(arguments).items() if name not in NOT_SETTINGS}
    kept = KeptRuns("ablations", settings, arguments.json, arguments.part_seconds)
    kept.content["variants"] = [asdict(variant) for variant in variants]
    keys = [
        {"variant": variant.name, "repeat": repeat}
        for repeat in range(arguments.repeats)
        # In the other order every second time: what comes first has no advantage.
        for variant in (variants if repeat % 2 == 0 else variants[::-1])
    ]
    todo = sum(not kept.has(**key) for key in keys)
    minutes = minutes_of(ablation, todo, arguments.skip + arguments.seconds)
    print(f"{ablation.about}: {todo} runs, about {minutes} min", flush=True)

    def run(variant: str, repeat: int) -> dict[str, Any]:
        chosen = next(one for one in variants if one.name == variant)
        return {**measure(chosen, repeat, arguments), **run_probe(ablation, chosen, arguments, hardware)}

    return kept.complete(keys, run, partial(progress_line, ablation), table, picture, arguments.picture)


def minutes_of(ablation: Ablation, runs: int, run_s: float) -> int:
    """Return how long so many runs will take, about."""
    probe_s = PROBE_SECONDS + PROBE_START_S if ablation.probe else 0.0
    return math.ceil(runs * (run_s + END_S + probe_s) / 60)


def run_probe(ablation: Ablation, variant: Variant, arguments: argparse.Namespace, hardware: Hardware) -> Json:
    """Measure what a run's own counters do not have."""
    shared = {"transport": variant.series, "seconds": min(PROBE_SECONDS, arguments.seconds), **PROBE_SIZES}
    if ablation.probe == "row latency":
        learner = {"device": "cuda" if hardware.gpus else "cpu", "replay_rows": 200_000}
        return probe("row_latency.py", {**shared, **learner, "samplers": int(variant.x)})
    if ablation.probe == "weight latency":
        readers = max(1, hardware.cores - 1)
        policy = {"interval_s": float(variant.x), "readers": readers, "hidden": [256, 256]}
        return probe("weight_latency.py", {**shared, **policy})
    return {}


# --- report ----------------------------------------------------------------------------------------------------


def progress_line(ablation: Ablation, run: dict[str, Any]) -> str:
    shown = [
        f"{column.header.format(target='target')} {run[column.key]:{column.form}}"
        for column in ablation.columns
        if not column.is_relative and run.get(column.key) is not None
    ]
    return f"{run['variant']}, repeat {run['repeat']}: {', '.join(shown)}{disturbance(run['others_cores'] or 0.0)}"


def table(content: dict[str, Any]) -> str:
    """Return the Markdown table of a JSON's content: medians over the repeats, with the lowest and the highest."""
    ablation = ABLATIONS[content["settings"]["ablation"]]
    target = content["settings"]["target_return"]
    columns = [column for column in ablation.columns if any(is_shown(column, run, target) for run in content["runs"])]
    headers = [column.header.format(target=f"{target:,g}" if target is not None else "") for column in columns]
    rows = [
        [variant["name"], *(cell(column, variant, content) for column in columns)] for variant in content["variants"]
    ]
    return markdown([ablation.rows, *headers], rows)


def is_shown(column: Column, run: dict[str, Any], target: float | None) -> bool:
    """Return whether a column has figures: one of GPUs has none where there is no GPU."""
    return target is not None if column.key == "time_to_target_s" else run.get(column.key) is not None


def cell(column: Column, variant: dict[str, Any], content: dict[str, Any]) -> str:
    own = {run["repeat"]: run for run in content["runs"] if run["variant"] == variant["name"]}
    if column.key == "time_to_target_s":
        return seconds_cell(list(own.values()))
    values = {repeat: run.get(column.key) for repeat, run in own.items()}
    figures = [value for value in values.values() if value is not None]
    if column.is_relative:
        first = baseline_of(variant, content["variants"])["name"]
        if first == variant["name"]:
            return "1"
        others = {run["repeat"]: run[column.key] for run in content["runs"] if run["variant"] == first}
        figures = [value / others[repeat] for repeat, value in values.items() if value and others.get(repeat)]
    return span(figures, column.form)


def seconds_cell(runs: list[dict[str, Any]]) -> str:
    """Return the time to the target; a run that did not reach it took longer than it lasted, which is marked."""
    if not runs:
        return "-"
    times, limit_s = [run["time_to_target_s"] for run in runs], runs[0]["limit_s"]
    ordered = in_order(times, limit_s)
    return f"{median_of(times, limit_s)} ({ordered[0]} to {ordered[-1]})"


def picture(content: dict[str, Any], path: Path) -> None:
    settings = content["settings"]
    ablation = ABLATIONS[settings["ablation"]]
    columns = [column for column in ablation.columns if column.key in ablation.panels and not column.is_relative]
    shown = [column for column in columns if any(value_of(run, column) is not None for run in content["runs"])]
    figure = new_figure(PANEL_INCHES[0] * len(shown), PANEL_INCHES[1])
    series = list(dict.fromkeys(variant["series"] for variant in content["variants"]))
    places = list(dict.fromkeys(variant["x"] for variant in content["variants"]))
    for place, column in enumerate(shown, 1):
        axes = figure.add_subplot(1, len(shown), place)
        for number in range(len(series)):
            draw_series(axes, column, series, number, places, content)
        axes.set_xticks(range(len(places)), [textwrap.fill(place, TICK_LETTERS) for place in places])
        axes.set_xlim(-0.5, len(places) - 0.5)
        header = column.header.format(target=f"{settings['target_return']:g}")
        legend = "best" if len(series) > 1 else None
        dress(axes, ablation.rows.rpartition(", ")[2], header, legend=legend)
        axes.set_ylim(bottom=0)
    save(figure, path, f"{settings['env']}, {machine_text(content['machine'])}: {ablation.about}")


def value_of(run: dict[str, Any], column: Column) -> float | None:
    """Return a figure of a run; of a target that was not reached, how long the run lasted."""
    value: float | None = run[column.key]
    return run["limit_s"] if value is None and column.key == "time_to_target_s" else value


def draw_series(
    axes: Any, column: Column, series: list[str], number: int, places: list[str], content: dict[str, Any]
) -> None:
    at, groups, colour = [], [], colour_of(number)
    for variant in content["variants"]:
        runs = [run for run in content["runs"] if run["variant"] == variant["name"]]
        known = [value for run in runs if (value := value_of(run, column)) is not None]
        if variant["series"] != series[number] or not known:
            continue
        # Next to each other, where they share a place.
        at.append(places.index(variant["x"]) + OFFSET * (number - (len(series) - 1) / 2))
        groups.append(known)
        if any(run[column.key] is None for run in runs):
            axes.annotate(">", (at[-1], max(known)), fontsize=9, ha="center", va="bottom", color=colour)
    # A line only where there is something in between: numbers, but not names.
    line = "-" if all(place.replace(".", "").isdigit() for place in places) else "none"
    style = {"marker": "o", "capsize": 3, "color": colour, "linestyle": line}
    draw_medians(axes, at, groups, **style, label=series[number] or None)


# --- command line ----------------------------------------------------------------------------------------------


def parse_arguments(hardware: Hardware) -> argparse.Namespace:
    parser = make_parser(__doc__)
    names = parser.add_subparsers(dest="ablation", required=True, metavar="NAME")
    for name, ablation in ABLATIONS.items():
        add_ablation(names.add_parser(name, help=ablation.about, description=ablation.about), ablation)
    arguments = parser.parse_args()
    require(arguments.skip >= 0, f"--skip must not be below 0, it is {arguments.skip}")
    values = getattr(arguments, "values", [])
    is_fitting = arguments.ablation != "restricted" or max(map(float, values)) <= hardware.cores
    require(is_fitting, f"--values: there are {hardware.cores} cores here")
    return arguments


def add_ablation(parser: argparse.ArgumentParser, ablation: Ablation) -> None:
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--target-return", type=float, default=-200.0)
    parser.add_argument("--repeats", type=count, default=3, help="runs of each variant, in turn")
    skip_help = f"seconds before the window, by default {ablation.skip_s:g}"
    parser.add_argument("--skip", type=float, default=ablation.skip_s, help=skip_help)
    seconds_help = f"of the window, by default {ablation.seconds:g}"
    parser.add_argument("--seconds", type=positive, default=ablation.seconds, help=seconds_help)
    if ablation.values:
        values = list(ablation.values)
        values_help = f"what is swept, by default {' '.join(values)}"
        parser.add_argument("--values", nargs="+", type=number_text, default=values, help=values_help)
    if ABLATIONS["adaptation"] is ablation:
        parser.add_argument("--bad-start", type=start_text, help="such as samplers=4,batch_size=512")
        help_text = 'static settings to compare with too, such as "batch 128=--batch-size 128"'
        several = {"action": "append", "default": [], "type": named_flags, "metavar": "NAME=FLAGS"}
        parser.add_argument("--static", help=help_text, **several)
    add_kept_runs_flags(parser)
    parser.add_argument("--picture", type=picture_file, help="draw what was measured: .png, .svg or .pdf")
    more = "for `spreeze train`, in all variants; must come last"
    parser.add_argument("--train-args", nargs=argparse.REMAINDER, default=[], help=more)


def named_flags(text: str) -> tuple[str, list[str]]:
    name, flags = named(text)
    return name, shlex.split(flags)


def number_text(text: str) -> str:
    positive(text)
    return text  # as it is a flag of `spreeze train`


if __name__ == "__main__":
    sys.exit(main())
