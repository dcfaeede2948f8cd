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

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kept_runs import KeptRuns, add_flags, check_flags, refuse, require
from trainings import disturbed_note, train

from sitting import RunCrashed, disturbance, span
from spreeze.runs.learning_curves import join_runs

END_SHARE = 0.2  # of the steps or of the time: the return at the end is the mean of the evaluations in it
WALL_S, ENV_STEPS, RETURN = 0, 1, 3  # of an evaluation: wall_s, env_steps, updates, mean_return
EQUAL_STEPS, EQUAL_TIME = "equal steps", "equal time"
AXIS = {EQUAL_STEPS: ENV_STEPS, EQUAL_TIME: WALL_S}


class Variant(NamedTuple):
    """What is compared."""

    samplers: int
    exploration: float
    exploration_high: float

    def __str__(self) -> str:
        return f"{self.samplers} sampler{'s' * (self.samplers > 1)}, {spread_text(self)}"


def main() -> int:
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
    for key in wanted:
        if kept.has(**key) or kept.is_part_over():
            continue
        try:
            kept.add({**key, **run_once(key, arguments)})
        except RunCrashed as crash:
            print(f"{key} crashed: {crash}", file=sys.stderr)
            return 1
        print(progress_line(kept.runs[-1], kept.content), flush=True)
    if kept.runs:
        print(f"\n{table(kept.content)}{disturbed_note(kept.runs)}")
    if missing := sum(not kept.has(**key) for key in wanted):
        print(f"{missing} runs are left: the same command goes on.")
    if kept.runs and arguments.picture is not None:
        picture(kept.content, arguments.picture)
    return 0


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
    if not run["evaluations"]:
        raise RunCrashed("it ended before its first evaluation: give it more --max-env-steps and --max-seconds")
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
    lines = [
        f"| samplers | environments | exploration | return after {steps} | mean until then | seconds for it "
        f"| return after {seconds} | mean until then | env steps/s | updates/s |",
        "|" + "---|" * 10,
    ]
    for variant in sorted({Variant(*(run[name] for name in Variant._fields)) for run in runs}, key=by_noise):
        of_this = [run for run in runs if all(run[name] == value for name, value in variant._asdict().items())]
        slow, free = ([run for run in of_this if run["regime"] == regime] for regime in (EQUAL_STEPS, EQUAL_TIME))
        cells = [
            str(variant.samplers),
            str(variant.samplers * settings["envs_per_sampler"]),
            spread_text(variant),
            _span([return_at_end(run, content) for run in slow], ",.0f"),
            _span([return_on_the_way(run, content) for run in slow], ",.0f"),
            _span([run["wall_s"] for run in slow], ".1f"),
            _span([return_at_end(run, content) for run in free], ",.0f"),
            _span([return_on_the_way(run, content) for run in free], ",.0f"),
            _span([run["env_steps"] / run["wall_s"] for run in free], ",.0f"),
            _span([run["updates"] / run["wall_s"] for run in free], ",.0f"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _span(figures: list[float], form: str) -> str:
    return span(figures, form) if figures else "-"


def by_noise(variant: Variant) -> tuple[float, float, int]:
    """Order variants by their noise, and those of the same by their samplers."""
    return (variant.exploration_high - variant.exploration, variant.exploration, variant.samplers)


def picture(content: dict[str, Any], path: Path) -> None:
    """Draw return against steps at equal steps, and against time at equal time: medians and ranges over seeds."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    runs, settings = content["runs"], content["settings"]
    found = sorted({Variant(*(run[name] for name in Variant._fields)) for run in runs}, key=by_noise)
    numbers = sorted({variant.samplers for variant in found})
    noises = list(dict.fromkeys(spread_text(variant) for variant in found))
    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    for place, (regime, axis) in enumerate(AXIS.items(), 1):
        axes = figure.add_subplot(1, 2, place)
        for variant in found:
            of_this = [run for run in runs if all(run[name] == value for name, value in variant._asdict().items())]
            series = [
                [(e[axis], e[RETURN]) for e in run["evaluations"]] for run in of_this if run["regime"] == regime
            ]
            curve = join_runs(series, "range")
            if curve is None:
                continue
            style = ("-", "--", ":", "-.")[noises.index(spread_text(variant)) % 4]
            colour = mpl.colormaps["tab10"](numbers.index(variant.samplers) % 10)
            axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.1, linewidth=0)
            axes.plot(curve.x, curve.median, style, color=colour, linewidth=1.4, label=str(variant))
        axes.set_title(regime, fontsize=9)
        axes.set_xlabel("environment steps" if axis == ENV_STEPS else "wall time from the command on, s", fontsize=8)
        axes.set_ylabel("mean return of an evaluation", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.25)
        axes.legend(fontsize=6, loc="lower right")
    machine = content["machine"]
    where = f"{machine['cores']} cores, {', '.join(machine['gpus']) or 'no GPU'}"
    figure.suptitle(f"{settings['env']}, {settings['algo']}, {where}; median and range over seeds", fontsize=9)
    figure.savefig(path, dpi=150)


def parse_noise(text: str) -> tuple[float, float]:
    """Read A:B, the noise of the calmest and of the wildest environment, or A for all alike."""
    low, _, high = text.partition(":")
    try:
        return float(low), float(high or low)
    except ValueError:
        refuse(f"--exploration {text} must be a number, or two with a colon between: 0.5:2")


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
    parser.add_argument(
        "--spreeze-args", nargs=argparse.REMAINDER, default=[], help="for `spreeze train`; must come last"
    )
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
    sys.exit(main())
