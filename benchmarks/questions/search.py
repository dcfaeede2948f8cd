"""Spreeze's own adaptation, Bayesian, evolutionary and random search: objective reached against seconds spent.

    python benchmarks/questions/search.py --json search.json --picture search.png

Each method drives a training of its own while it runs, over the same knobs, from the same start, for the same time.
Afterwards one more training measures all settings that any of them has held for the best, and that is what counts.
Out: a Markdown table, and with --json and --picture all of it.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from live_search import Optuna, judge, search_live

from ablation.launch import start_from, start_text
from charts import new_figure, save
from flags import add_kept_runs_flags, count, make_parser, picture_file, positive, refuse, require
from formats import machine_text, markdown, span
from kept_runs import KeptRuns
from session import CpuMeter, Json, disturbance
from spreeze.commands.bench.curves import colour_of, dress
from spreeze.config import Config
from spreeze.config.run_settings import RunSettings
from spreeze.errors import UsageError

METHODS = {
    "spreeze": "Spreeze's adaptation",
    "tpe": "Bayesian (Optuna's TPE)",
    "cmaes": "evolutionary (Optuna's CMA-ES)",
    "random": "random",
}
PACKAGES = ("optuna", "cmaes")
NEAR = 0.95  # of the best objective: what counts as found
JUDGED = "judged"  # in place of a method: the run that measures what all have found


def main() -> int:
    arguments = parse_arguments()
    config = make_config(arguments)
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    fix = f"{sys.executable} -m pip install {' '.join(PACKAGES)}"
    require(not missing, f"{' and '.join(missing)} not installed: {fix}")
    names = ("env", "seconds", "samples_each", "envs_per_sampler", "split", "device", "start")
    settings = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    if arguments.start is not None:
        start_from(arguments.start)
    kept = KeptRuns("search", settings, arguments.json, arguments.part_seconds)
    keys = [{"repeat": repeat, "method": name} for repeat in range(arguments.repeats) for name in (*METHODS, JUDGED)]
    run = partial(measure, config, kept.runs, arguments)
    return kept.complete(keys, run, progress_line, table, picture, arguments.picture)


def measure(config: Config, runs: list[Json], arguments: argparse.Namespace, repeat: int, method: str) -> Json:
    """Search with one method, or judge what all of this repeat have found; say who else used the cores."""
    meter, config = CpuMeter(), config.replace(seed=repeat)
    if method == JUDGED:
        of_repeat = [run for run in runs if run["repeat"] == repeat]
        held = {RunSettings(**one["settings"]) for run in of_repeat for one in run["incumbents"]}
        found: dict[str, Any] = {"points": judge(config, sorted(held), arguments.samples_each)}
    else:
        asked = None if method == "spreeze" else Optuna(method, repeat)
        found = search_live(config, arguments.seconds, arguments.samples_each, asked)
    cpu = meter.read()
    return {**found, "wall_s": round(cpu.wall_s, 2), "others_cores": round(cpu.others_cores, 3)}


def share_at(run: dict[str, Any], truth: dict[RunSettings, float], second: float) -> float:
    """Return how good what a search held for the best at that moment is, of the best that any has found."""
    held = [one for one in run["incumbents"] if one["at_s"] <= second] or run["incumbents"][:1]
    return truth[RunSettings(**held[-1]["settings"])] / max(truth.values())


def seconds_to_near(run: dict[str, Any], truth: dict[RunSettings, float]) -> float | None:
    """Return when a search came near the best and stayed there; None if it did not."""
    found = None
    for moment in (one["at_s"] for one in run["incumbents"]):
        is_near = share_at(run, truth, moment) >= NEAR
        found = (moment if found is None else found) if is_near else None
    return found


def searches(content: dict[str, Any], method: str) -> list[tuple[dict[str, Any], dict[RunSettings, float]]]:
    """Return the runs of a method with the truth of their repeat, where that has been measured.

    The truth is the objective of all settings that any search held for the best, measured in one training.
    """
    points = {run["repeat"]: run["points"] for run in content["runs"] if run["method"] == JUDGED}
    truths = {
        repeat: {RunSettings(**point["settings"]): point["objective"] for point in of_repeat}
        for repeat, of_repeat in points.items()
    }
    runs = [run for run in content["runs"] if run["method"] == method and run["repeat"] in truths]
    return [(run, truths[run["repeat"]]) for run in runs]


def progress_line(run: dict[str, Any]) -> str:
    disturbed = disturbance(run["others_cores"])
    if run["method"] == JUDGED:
        return f"repeat {run['repeat']}  measured {len(run['points'])} settings in {run['wall_s']:.0f} s{disturbed}"
    last = run["incumbents"][-1]
    settings = ", ".join(f"{name} {value}" for name, value in last["settings"].items() if name != "pinned")
    return (
        f"repeat {run['repeat']}  {METHODS[run['method']]}: {len(run['tries'])} tries; holds {settings} "
        f"since {last['at_s']:.1f} s{disturbed}"
    )


def table(content: dict[str, Any]) -> str:
    seconds = content["settings"]["seconds"]
    moments = [seconds / 3, 2 * seconds / 3, seconds]
    heads = ["search", "tries", *(f"objective after {moment:.0f} s, of the best found" for moment in moments)]
    heads += ["objective while searching, of the best found", f"near it ({NEAR:.0%}) to the end", "since, s"]
    rows = []
    for method, name in METHODS.items():
        found = searches(content, method)
        if not found:
            continue
        near = [seconds_to_near(run, truth) for run, truth in found]
        reached = [moment for moment in near if moment is not None]
        cells = [name, span([len(run["tries"]) for run, _ in found], ".0f")]
        cells += [span([share_at(run, truth, moment) for run, truth in found], ".1%") for moment in moments]
        cells.append(span([run["meanwhile"]["objective"] / max(truth.values()) for run, truth in found], ".1%"))
        rows.append([*cells, f"{len(reached)} of {len(found)}", span(reached, ".1f")])
    return markdown(heads, rows)


def picture(content: dict[str, Any], path: Path) -> None:
    """Draw how good what each search held for the best was, against the seconds it had searched."""
    settings, figure = content["settings"], new_figure(7.0, 4.2)
    seconds, axes = np.linspace(0.0, settings["seconds"], 300), figure.add_subplot()
    for i, (method, name) in enumerate(METHODS.items()):
        found = searches(content, method)
        if not found:
            continue
        shares = np.array([[share_at(run, truth, second) for second in seconds] for run, truth in found])
        low, high = shares.min(axis=0), shares.max(axis=0)
        axes.fill_between(seconds, low, high, color=colour_of(i), alpha=0.12, linewidth=0)
        axes.plot(seconds, np.median(shares, axis=0), color=colour_of(i), linewidth=1.5, label=name)
    dress(axes, "seconds of searching", "objective of what is held for the best, of the best found")
    start = f", from {settings['start']}" if "start" in settings else ""
    where = f"{settings['env']}{start}, {machine_text(content['machine'])}"
    save(figure, path, f"{where}; median and range of the repeats")


def make_config(arguments: argparse.Namespace) -> Config:
    """Return what all searches train with: samplers, batch size and threads are theirs, all else is fixed."""
    try:
        return Config(arguments.env).replace(
            envs_per_sampler=arguments.envs_per_sampler,
            pin_cores="no",
            split=arguments.split,
            device=arguments.device,
            adapt_after_s=0.0,
            fresh=True,
            quiet=True,
            tensorboard=False,
        )
    except UsageError as error:
        refuse(str(error))


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--seconds", type=positive, default=30.0, help="of each search")
    samples_help = "windows that Optuna's searches and the judge measure settings over; the adaptation decides itself"
    parser.add_argument("--samples-each", type=count, default=2, help=samples_help)
    parser.add_argument("--repeats", type=count, default=3)
    parser.add_argument("--start", type=start_text, help="instead of the defaults, such as samplers=4,batch_size=512")
    parser.add_argument("--envs-per-sampler", type=count, default=16, help="held fixed")
    split_help = "as of `spreeze train`; a learner that is split over two cores leaves no choice of threads"
    parser.add_argument("--split", choices=("auto", "yes", "no"), default="no", help=split_help)
    parser.add_argument("--device", default="auto", help="where the learner runs")
    add_kept_runs_flags(parser)
    parser.add_argument("--picture", type=picture_file, help="draw what was measured: .png, .svg or .pdf")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
