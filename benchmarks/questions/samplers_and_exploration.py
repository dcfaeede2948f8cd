"""What the number of samplers and the spread of their exploration do to the return reached, not only to the rate.

    python benchmarks/questions/samplers_and_exploration.py --json exploration.json --picture exploration.png

Every variant is trained twice for each seed: to the same number of environment steps, with as many updates for each
step as all others, which shows what its experience is worth; and for the same time, everyone flat out, which shows
what a user gets. Variants take turns. Out: a Markdown table, and with --json and --picture all of it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from trainings import ENV_STEPS, RETURN, WALL_S, disturbed_note, run_missing, train

from charts import LINES, draw_curves, dress, new_figure, save
from formats import machine_text, markdown, span
from kept_runs import KeptRuns, add_flags, add_train_args, check_flags, refuse, require
from session import RunCrashed, disturbance, make_parser

END_SHARE = 0.2  # of the steps or of the time: the return at the end is the mean of the evaluations in it
EQUAL_STEPS, EQUAL_TIME = "equal steps", "equal time"
AXIS = {EQUAL_STEPS: ENV_STEPS, EQUAL_TIME: WALL_S}


class Variant(NamedTuple):
    """What is compared."""

    samplers: int
    exploration: float
    exploration_high: float

    def __str__(self) -> str:
        return f"{self.samplers} sampler{'s' * (self.samplers > 1)}, {spread_text(self)}"


def main() -> None:
    """Train what is missing, and report."""
    arguments = parse_arguments()
    names = ("env", "algo", "envs_per_sampler", "max_env_steps", "updates_per_step", "max_seconds", "spreeze_args")
    settings = {name: getattr(arguments, name) for name in names}
    kept = KeptRuns("samplers_and_exploration", settings, arguments.json, arguments.part_seconds)
    wanted = [
        {"seed": seed, "regime": regime, **variant._asdict()}
        for seed in range(arguments.seeds)
        for regime in (EQUAL_STEPS, EQUAL_TIME)
        for variant in variants(arguments)
    ]
    run_missing(kept, wanted, lambda key: run_once(key, arguments), lambda run: progress_line(run, kept.content))
    if kept.runs:
        print(f"\n{table(kept.content)}{disturbed_note(kept.runs)}")
        if arguments.picture is not None:
            picture(kept.content, arguments.picture)


def variants(arguments: argparse.Namespace) -> list[Variant]:
    return [Variant(samplers, *noise) for noise in arguments.exploration for samplers in arguments.samplers]


def run_once(key: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Train once. --no-adapt: the number of samplers is what is compared, and nothing else may follow from it."""
    flags = [
        f"--algo={arguments.algo}",
        f"--seed={key['seed']}",
        "--no-adapt",
        f"--samplers={key['samplers']}",
        f"--envs-per-sampler={arguments.envs_per_sampler}",
        f"--exploration={key['exploration']}",
        f"--exploration-high={key['exploration_high']}",
        "--eval-interval-s=0.5",
    ]
    limit_s = arguments.max_seconds
    if key["regime"] == EQUAL_STEPS:
        ratio = arguments.updates_per_step
        flags += [f"--min-updates-per-step={ratio}", f"--max-updates-per-step={ratio}"]
        flags += [f"--max-env-steps={arguments.max_env_steps}"]
        limit_s = arguments.guard_seconds
    run = train(arguments.env, [*flags, *arguments.spreeze_args], limit_s)
    if key["regime"] == EQUAL_STEPS and run["stop_reason"] != "max_env_steps":
        raise RunCrashed(
            f"{run['env_steps']} steps were made in {limit_s:g} s: lower --max-env-steps or --updates-per-step, "
            "or raise --guard-seconds"
        )
    return run


# --- what is said about a run ----------------------------------------------------------------------------------


def budget(regime: str, content: dict[str, Any]) -> float:
    """Return where the horizontal axis of a regime ends: steps or seconds."""
    settings = content["settings"]
    return float(settings["max_env_steps"] if regime == EQUAL_STEPS else settings["max_seconds"])


def return_at_end(run: dict[str, Any], content: dict[str, Any]) -> float:
    """Return the mean of the evaluations in the last fifth of the budget, or the last one if there is none."""
    axis, end = AXIS[run["regime"]], budget(run["regime"], content)
    late = [e[RETURN] for e in run["evaluations"] if e[axis] >= (1 - END_SHARE) * end]
    return float(statistics.fmean(late) if late else run["evaluations"][-1][RETURN])


def return_on_the_way(run: dict[str, Any], content: dict[str, Any]) -> float:
    """Return the mean over the whole budget, an evaluation holding until the next: high for what learns early.

    Before its first evaluation a run is given that one's return.
    """
    axis, end = AXIS[run["regime"]], budget(run["regime"], content)
    evaluations = run["evaluations"]
    starts = [0.0, *(min(end, e[axis]) for e in evaluations[1:]), end]
    held = zip(evaluations, starts, starts[1:], strict=False)
    return float(sum(e[RETURN] * (to - begin) for e, begin, to in held) / end)


# --- report ----------------------------------------------------------------------------------------------------


def progress_line(run: dict[str, Any], content: dict[str, Any]) -> str:
    variant = Variant(*(run[name] for name in Variant._fields))
    return (
        f"seed {run['seed']}  {run['regime']:<11}  {variant}: return {return_at_end(run, content):,.1f} at the end, "
        f"{run['env_steps']:,} env steps, {run['updates']:,} updates, {run['wall_s']:.1f} s"
        f"{disturbance(run['cpu']['others_cores'])}"
    )


def spread_text(variant: Variant) -> str:
    """Say the noise of exploration, from the calmest to the wildest environment."""
    low, high = variant.exploration, variant.exploration_high
    return f"noise {low:g}" if low == high else f"noise {low:g} to {high:g}"


def table(content: dict[str, Any]) -> str:
    """Return a line for each variant: first at equal steps, then at equal time."""
    settings, runs = content["settings"], content["runs"]
    steps, seconds = f"{settings['max_env_steps']:,} env steps", f"{settings['max_seconds']:g} s"
    heads = ["samplers", "environments", "exploration", f"return after {steps}", "mean until then", "seconds for it"]
    heads += [f"return after {seconds}", "mean until then", "env steps/s", "updates/s"]
    rows = []
    for variant in variants_of(runs):
        slow, free = (runs_of(runs, variant, regime) for regime in (EQUAL_STEPS, EQUAL_TIME))
        cells = [str(variant.samplers), str(variant.samplers * settings["envs_per_sampler"]), spread_text(variant)]
        cells += return_cells(slow, content)
        cells.append(span([run["wall_s"] for run in slow], ".1f"))
        cells += return_cells(free, content)
        cells += [span([run[name] / run["wall_s"] for run in free], ",.0f") for name in ("env_steps", "updates")]
        rows.append(cells)
    return markdown(heads, rows)


def return_cells(runs: list[dict[str, Any]], content: dict[str, Any]) -> list[str]:
    return [span([of(run, content) for run in runs], ",.0f") for of in (return_at_end, return_on_the_way)]


def variants_of(runs: list[dict[str, Any]]) -> list[Variant]:
    return sorted({Variant(*(run[name] for name in Variant._fields)) for run in runs}, key=by_noise)


def runs_of(runs: list[dict[str, Any]], variant: Variant, regime: str) -> list[dict[str, Any]]:
    key = {**variant._asdict(), "regime": regime}
    return [run for run in runs if all(run[name] == value for name, value in key.items())]


def by_noise(variant: Variant) -> tuple[float, float, int]:
    """Order variants by their noise, and those of the same by their samplers."""
    return (variant.exploration_high - variant.exploration, variant.exploration, variant.samplers)


def picture(content: dict[str, Any], path: Path) -> None:
    """Draw return against steps at equal steps, and against time at equal time: medians and ranges over seeds."""
    runs, settings, figure = content["runs"], content["settings"], new_figure(10.0, 4.2)
    found = variants_of(runs)
    numbers = sorted({variant.samplers for variant in found})
    noises = list(dict.fromkeys(spread_text(variant) for variant in found))
    for place, (regime, axis) in enumerate(AXIS.items(), 1):
        axes = figure.add_subplot(1, 2, place)
        for variant in found:
            series = [[(e[axis], e[RETURN]) for e in run["evaluations"]] for run in runs_of(runs, variant, regime)]
            line = LINES[noises.index(spread_text(variant)) % len(LINES)]
            draw_curves(axes, series, str(variant), numbers.index(variant.samplers), line)
        x = "environment steps" if axis == ENV_STEPS else "wall time from the command on, s"
        dress(axes, x, "mean return of an evaluation", regime)
    where = machine_text(content["machine"])
    save(figure, path, f"{settings['env']}, {settings['algo']}, {where}; median and range over seeds")


def parse_noise(text: str) -> tuple[float, float]:
    """Read A:B, the noise of the calmest and of the wildest environment, or A for all alike."""
    low, _, high = text.partition(":")
    try:
        return float(low), float(high or low)
    except ValueError:
        refuse(f"--exploration {text} must be a number, or two with a colon between: 0.5:2")


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--algo", choices=("sac", "td3", "ddpg"), default="sac")
    parser.add_argument("--samplers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--envs-per-sampler", type=int, default=16)
    parser.add_argument(
        "--exploration",
        type=parse_noise,
        nargs="+",
        default=[(1.0, 1.0), (0.5, 2.0)],
        metavar="A:B",
        help="noise from the calmest to the wildest environment; A alone: all alike",
    )
    parser.add_argument("--max-env-steps", type=int, default=30_000, help="of a run at equal steps")
    parser.add_argument("--updates-per-step", type=float, default=0.1, help="of a run at equal steps")
    parser.add_argument("--max-seconds", type=float, default=12.0, help="of a run at equal time")
    parser.add_argument("--guard-seconds", type=float, default=300.0, help="for a run at equal steps: then it fails")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each variant, with the seeds 0, 1, 2, ...")
    add_flags(parser)
    add_train_args(parser, "--spreeze-args")
    arguments = parser.parse_args()
    require(arguments.seeds >= 1 and min(arguments.samplers) >= 1, "--seeds and --samplers must be at least 1")
    numbers = (arguments.max_env_steps, arguments.updates_per_step, arguments.max_seconds, arguments.guard_seconds)
    require(
        min(*numbers, arguments.envs_per_sampler) > 0,
        "--max-env-steps, --updates-per-step, --max-seconds, --guard-seconds and --envs-per-sampler must be above 0",
    )
    require(all(0 <= low <= high for low, high in arguments.exploration), "--exploration A:B needs 0 <= A <= B")
    check_flags(arguments)
    return arguments


if __name__ == "__main__":
    main()
