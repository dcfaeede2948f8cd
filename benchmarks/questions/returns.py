"""What runs have learnt and kept, from the evaluations that `spreeze bench solve` writes: tables for two questions.

In: the content of a result. Out: Markdown tables.
"""

from __future__ import annotations

import statistics
from typing import Any, NamedTuple

from formats import markdown, span

Run = dict[str, Any]
LEVEL = 0.8  # from random actions (0) to the best evaluation (1): a run that is above it has kept its best
LAST_EVALUATIONS = 0.1  # of all: how a run ends is their mean
LAST_BUDGET = 0.2  # of the steps or of the time: the return at the end is the mean of the evaluations in it
WALL_S, ENV_STEPS, RETURN = 0, 1, 3  # of an evaluation: wall_s, env_steps, updates, mean_return


def runs_of(content: dict[str, Any]) -> list[Run]:
    """Return the runs with their settings, and each evaluation as a list."""
    tasks, found = {task["label"]: task for task in content["tasks"]}, []
    for run in content["runs"]:
        evaluations = [[e["wall_s"], e["env_steps"], e["updates"], e["mean_return"]] for e in run["evaluations"]]
        task = tasks[run["label"]]
        # The run's own is the limit, whenever it ended; few results say when that was.
        wall_s = run.get("ended_s", evaluations[-1][WALL_S])
        settings = {"env": task["env"], "limit_s": task["limit_s"], **task["flags"]}
        found.append({**run, **settings, "wall_s": wall_s, "evaluations": evaluations})
    return found


# --- whether long runs keep what they have learnt ---------------------------------------------------------------


def stability(content: dict[str, Any]) -> str:
    """A line for each task: how many runs stay near their best return.

    A return counts by its place between that of random actions (0) and the run's best evaluation (1): 80% means the
    same where returns are negative. Where nobody measured random actions, the first evaluation stands for them.
    """
    heads = ["task", "runs", "episodes", "updates", "updates/s", "return of random actions", "best return"]
    heads += ["runs that stay above 80% of it", "runs that end there", "evaluations there", "lowest after the best"]
    rows, all_runs = [], runs_of(content)
    for env in dict.fromkeys(run["env"] for run in all_runs):
        runs = [run for run in all_runs if run["env"] == env]
        first = statistics.median(run["evaluations"][0][RETURN] for run in runs)
        random = content.get("random_returns", {}).get(env, first)
        found = [judge(run, random) for run in runs]
        counts = [[run[name] for run in runs if name in run] for name in ("episodes", "updates")]
        cells = [env, str(len(runs)), *(span(of, ",.0f") for of in counts)]
        cells += [span([run["updates"] / run["wall_s"] for run in runs], ",.0f"), f"{random:,.0f}"]
        cells.append(span([one["best"] for one in found], ",.0f"))
        cells += [f"{sum(one[name] for one in found)} of {len(found)}" for name in ("stays", "ends_there")]
        rows.append([*cells, *(span([one[name] for one in found], ".0%") for name in ("share", "lowest"))])
    return markdown(heads, rows)


def judge(run: Run, random: float) -> dict[str, Any]:
    """Return how well a run kept its best return, as shares of the distance from random to best."""
    returns = [evaluation[RETURN] for evaluation in run["evaluations"]]
    best = max(returns)
    if best <= random:  # nothing was learnt that could be kept
        return {"best": best, "stays": False, "ends_there": False, "share": 0.0, "lowest": 0.0}
    shares = [(one - random) / (best - random) for one in returns]
    lowest = min(shares[returns.index(best) :])
    since = shares[next(i for i, share in enumerate(shares) if share >= LEVEL) :]
    last = shares[-max(1, round(LAST_EVALUATIONS * len(shares))) :]
    return {
        "best": best,
        "stays": lowest >= LEVEL,
        "ends_there": statistics.fmean(last) >= LEVEL,
        "share": sum(share >= LEVEL for share in since) / len(since),
        "lowest": lowest,
    }


# --- what the number of samplers and the spread of their exploration do to the return ----------------------------


class Variant(NamedTuple):
    """What is compared: with the spread first, tables have all of one spread together."""

    exploration_high: float
    exploration: float
    samplers: int

    @classmethod
    def of(cls, run: Run) -> Variant:
        return cls(*(run[name] for name in cls._fields))

    def noise(self) -> str:
        """Return the noise of exploration, from the calmest to the wildest environment."""
        low, high = self.exploration, self.exploration_high
        return f"noise {low:g}" if low == high else f"noise {low:g} to {high:g}"


def exploration(content: dict[str, Any]) -> str:
    """A line for each variant: first at equal steps, which shows what its experience is worth, then at equal time."""
    runs = runs_of(content)
    steps = max(run.get("max_env_steps", 0) for run in runs)
    free_s = min(run["limit_s"] for run in runs)
    heads = ["samplers", "environments", "exploration", f"return after {steps:,} env steps", "mean until then"]
    heads += ["seconds for it", f"return after {free_s:g} s", "mean until then", "env steps/s", "updates/s"]
    rows = []
    for variant in sorted(set(map(Variant.of, runs))):
        slow, free = (
            [run for run in runs if Variant.of(run) == variant and ("max_env_steps" in run) is which]
            for which in (True, False)
        )
        envs = variant.samplers * runs[0]["envs_per_sampler"]
        cells = [str(variant.samplers), str(envs), variant.noise(), *return_cells(slow, ENV_STEPS, steps)]
        cells += [span([run["wall_s"] for run in slow], ".1f"), *return_cells(free, WALL_S, free_s)]
        cells += [span([run[name] / run["wall_s"] for run in free], ",.0f") for name in ("env_steps", "updates")]
        rows.append(cells)
    return markdown(heads, rows)


def return_cells(runs: list[Run], axis: int, end: float) -> list[str]:
    return [span([of(run, axis, end) for run in runs], ",.0f") for of in (return_at_end, return_on_the_way)]


def return_at_end(run: Run, axis: int, end: float) -> float:
    """Return the mean of the evaluations in the last fifth of the budget, or the last one if there is none."""
    late = [e[RETURN] for e in run["evaluations"] if e[axis] >= (1 - LAST_BUDGET) * end]
    return float(statistics.fmean(late) if late else run["evaluations"][-1][RETURN])


def return_on_the_way(run: Run, axis: int, end: float) -> float:
    """Return the mean over the whole budget, an evaluation holding until the next: high for what learns early.

    Before its first evaluation a run is given that one's return.
    """
    evaluations = run["evaluations"]
    starts = [0.0, *(min(end, e[axis]) for e in evaluations[1:]), end]
    held = zip(evaluations, starts, starts[1:], strict=False)
    return float(sum(e[RETURN] * (to - begin) for e, begin, to in held) / end)
