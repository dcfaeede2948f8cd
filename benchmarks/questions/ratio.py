"""How many updates a scarce environment step is worth: returns at equal steps, for each ratio of updates to steps.

    python benchmarks/questions/ratio.py --jobs 16 --part-seconds 450 --json ratio.json

Each run is a serial training in one thread: what it learns depends on the ratio and the seed, and not on the clock.
So as many run side by side as there are cores, and other programs do not matter. Where N steps are made per second
and the learner could make U updates, a limit of R updates per step leads to a ratio of min(R, U / N). Equal time is
equal steps then, so that the returns at equal steps answer for every N and U. Out: two Markdown tables.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from returns import ENV_STEPS, RETURN, Run, return_at_end, return_on_the_way

from flags import add_kept_runs_flags, count, make_parser, named, positive, refuse
from formats import markdown, span
from kept_runs import KeptRuns
from serial_runs import SerialRun, make_runs
from session import Json

# Tasks that are learnt within a few thousand steps, and one that is not: there it shows whether a ratio stays good.
TASKS = {"Pendulum-v1": 4000, "Reacher-v5": 5000, "InvertedDoublePendulum-v5": 5000, "Hopper-v5": 20_000}
RATIOS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
MAX_UPDATES = 160_000  # a quarter of an hour and more on a core
# One environment, as of a robot. A serial run makes as many steps in evaluations as in training, so that evaluations
# of few episodes come more often.
FLAGS = ("--envs-per-sampler=1", "--eval-episodes=2")
STEPS_HZ = (20.0, 100.0, 500.0)
UPDATE_HZ = 400.0  # about what a learner makes that is split over two cores


def main() -> int:
    arguments = parse_arguments()
    names = ("tasks", "ratios", "max_updates", "seeds", "train_args")
    settings = {name: getattr(arguments, name) for name in names}
    kept = KeptRuns("ratio", settings, arguments.json, arguments.part_seconds, grows=("tasks", "ratios", "seeds"))
    make_runs(kept, runs_of(arguments), arguments.jobs, progress_line)
    print(f"\n{table(kept.content)}\n\n{by_steps_per_second(kept.content)}")
    return 0


# --- the runs --------------------------------------------------------------------------------------------------


def runs_of(arguments: argparse.Namespace) -> list[SerialRun]:
    """Return all runs, the longest first."""
    runs = [
        SerialRun(
            {"env": env, "ratio": ratio, "seed": seed},
            (
                env,
                f"--max-updates-per-step={ratio:g}",
                f"--seed={seed}",
                f"--max-env-steps={steps}",
                f"--max-updates={arguments.max_updates}",
                *FLAGS,
                *arguments.train_args,
            ),
            # An update takes about as long as a step.
            work=steps + min(float(arguments.max_updates), ratio * steps),
        )
        for env, steps in steps_of(arguments.tasks).items()
        for ratio in arguments.ratios
        for seed in range(arguments.seeds)
    ]
    return sorted(runs, key=lambda run: run.work, reverse=True)


def progress_line(run: Json) -> str:
    begin = f"{run['env']}  ratio {run['ratio']:g}  seed {run['seed']}  "
    if not run["evaluations"]:
        return begin + (run["failed"] or "no evaluation")
    cut = f"; {run['failed']}" if run["failed"] else ""
    did = f"{run['env_steps']:,} steps, {run['updates']:,} updates in {run['wall_s']:.0f} s"
    return f"{begin}{did}; last return {run['evaluations'][-1][RETURN]:,.1f}{cut}"


# --- the tables ------------------------------------------------------------------------------------------------


def table(*contents: Json) -> str:
    """A line for each task and ratio: what was learnt after as many steps as all runs of the task made."""
    heads = [
        "task",
        "after",
        "updates per step",
        "runs",
        "mean return until then",
        "return then",
        "Q, lowest and highest",
    ]
    rows = []
    for env, by_ratio in runs_by_task(contents).items():
        after = common_steps(by_ratio)
        for ratio, all_runs in by_ratio.items():
            runs = until(all_runs, after)
            ranges = [run["q_mean_range"] for run in runs if run["q_mean_range"]]
            q_range = [min(low for low, _ in ranges), max(high for _, high in ranges)] if ranges else []
            cells = [env, f"{after:,} steps", f"{ratio:g}", str(len(runs)), span(means_of(runs, after), ",.1f")]
            cells.append(span([return_at_end(run, ENV_STEPS, after) for run in runs], ",.1f"))
            rows.append([*cells, ", ".join(f"{q:,.0f}" for q in q_range) or "-"])
    return markdown(heads, rows)


def by_steps_per_second(*contents: Json) -> str:
    """A line for each number of steps per second: what each limit that all tasks have leads to at equal time.

    What was learnt until as many steps as all runs made counts by its place between the first evaluations (0) and the
    best ratio (1) of its task.
    """
    shares, rows = shares_of(contents), []
    limits = sorted(ratio for ratio, of_tasks in shares.items() if len(of_tasks) == len(runs_by_task(contents)))
    for steps_hz in STEPS_HZ:
        cells = [f"{steps_hz:g} ({UPDATE_HZ / steps_hz:g})"]
        for limit in limits:
            ratio = nearest(min(limit, UPDATE_HZ / steps_hz), limits)
            cells.append(f"{statistics.fmean(shares[ratio]):.0%} (lowest {min(shares[ratio]):.0%})")
        rows.append(cells)
    heads = ["steps/s (updates per step at most)", *(f"at most {limit:g}" for limit in limits)]
    return markdown(heads, rows)


def shares_of(contents: Sequence[Json]) -> dict[float, list[float]]:
    """Return how good each ratio is on each task, after as many steps as all runs of the task made."""
    shares: dict[float, list[float]] = {}
    for by_ratio in runs_by_task(contents).values():
        steps = common_steps(by_ratio)
        means = {ratio: statistics.median(means_of(until(runs, steps), steps)) for ratio, runs in by_ratio.items()}
        first = statistics.median(run["evaluations"][0][RETURN] for runs in by_ratio.values() for run in runs)
        best = max(means.values())
        for ratio, mean in means.items():
            shares.setdefault(ratio, []).append((mean - first) / (best - first) if best > first else 0.0)
    return shares


def runs_by_task(contents: Sequence[Json]) -> dict[str, dict[float, list[Run]]]:
    """Return the runs of each task and ratio that have an evaluation, also those that were cut short.

    Of a run that several results hold, the one that went furthest: the others are its beginning, because it repeats.
    """
    furthest: dict[tuple[str, float, int], Run] = {}
    for run in (run for content in contents for run in content["runs"] if run["evaluations"]):
        key = (run["env"], run["ratio"], run["seed"])
        furthest[key] = max(run, furthest.get(key, run), key=lambda one: one["env_steps"])
    tasks = dict.fromkeys(env for content in contents for env in steps_of(content["settings"]["tasks"]))
    found: dict[str, dict[float, list[Run]]] = {env: {} for env in tasks if env in {env for env, _, _ in furthest}}
    for env, ratio, seed in sorted(furthest):
        found[env].setdefault(ratio, []).append(furthest[env, ratio, seed])
    return found


def common_steps(by_ratio: dict[float, list[Run]]) -> int:
    """Return how many steps all runs of a task made, in hundreds."""
    return int(min(run["env_steps"] for runs in by_ratio.values() for run in runs)) // 100 * 100


def until(runs: list[Run], steps: int) -> list[Run]:
    """Return runs with their evaluations until a number of steps, and at least the first one."""
    return [
        {
            **run,
            "evaluations": [one for one in run["evaluations"] if one[ENV_STEPS] <= steps] or run["evaluations"][:1],
        }
        for run in runs
    ]


def means_of(runs: list[Run], steps: int) -> list[float]:
    """Return the mean return of each run until a number of steps."""
    return [return_on_the_way(run, ENV_STEPS, steps) for run in runs]


def nearest(ratio: float, ratios: list[float]) -> float:
    return min(ratios, key=lambda one: abs(math.log(one / ratio)))


# --- the command line ------------------------------------------------------------------------------------------


def steps_of(tasks: list[str]) -> dict[str, int]:
    """Return the environment steps of each task; of one that is named twice the last."""
    return {env: int(steps) for env, steps in map(named, tasks)}


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(__doc__)
    usual: list[Any] = [f"{env}={steps}" for env, steps in TASKS.items()]
    parser.add_argument("--tasks", nargs="+", default=usual, metavar="ENV=STEPS", help="environment steps of a run")
    parser.add_argument("--ratios", type=positive, nargs="+", default=list(RATIOS), help="updates per step")
    parser.add_argument("--max-updates", type=count, default=MAX_UPDATES, help="of one run, whatever its steps")
    parser.add_argument("--seeds", type=count, default=2)
    parser.add_argument("--jobs", type=count, default=os.cpu_count() or 1, help="runs at a time")
    add_kept_runs_flags(parser)
    more_help = "for `spreeze train`; must come last"
    parser.add_argument("--train-args", nargs=argparse.REMAINDER, default=[], help=more_help)
    arguments = parser.parse_args()
    for task in arguments.tasks:
        env, _, steps = task.partition("=")
        if not env or not steps.isdecimal() or int(steps) == 0:
            refuse(f"--tasks: '{task}' must be ENV=STEPS, such as Pendulum-v1=4000")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
