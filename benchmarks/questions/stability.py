"""Whether long runs at full rate keep what they have learnt: the share of runs that stay near their best return.

    python benchmarks/questions/stability.py --json stability.json --picture stability.png --part-seconds 420

Each task is trained on several seeds for at least a thousand episodes, with defaults, everyone flat out. A return
counts by its way from that of random actions (0) to the run's best evaluation (1): so 80% means the same where
returns are negative. Out: a Markdown table, and with --json and --picture all of it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import gymnasium

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from trainings import ENV_STEPS, RETURN, disturbed_note, run_missing, train

from charts import colour_of, dress, new_figure, save
from formats import machine_text, markdown, span
from kept_runs import KeptRuns, add_flags, add_train_args, check_flags, refuse, require
from session import disturbance, make_parser

LEVEL = 0.8
RANDOM_EPISODES = 20
END_SHARE = 0.1  # of the evaluations: how a run ends is their mean


def main() -> None:
    """Train what is missing, and report."""
    arguments = parse_arguments()
    settings = {name: getattr(arguments, name) for name in ("episodes", "max_seconds", "algo", "spreeze_args")}
    limits = {env: episode_limit(env) for env in arguments.envs}
    kept = KeptRuns("stability", settings, arguments.json, arguments.part_seconds)
    random_returns = kept.content.setdefault("random_returns", {})
    for env in arguments.envs:
        random_returns.setdefault(env, random_return(env))

    def run_once(key: dict[str, Any]) -> dict[str, Any]:
        # For so many steps that as many episodes have ended, whatever their length; or for as long as there is.
        steps = arguments.episodes * limits[key["env"]]
        flags = [f"--algo={arguments.algo}", f"--seed={key['seed']}", f"--max-env-steps={steps}"]
        return train(key["env"], [*flags, *arguments.spreeze_args], arguments.max_seconds)

    wanted = [{"env": env, "seed": seed} for seed in range(arguments.seeds) for env in arguments.envs]
    run_missing(kept, wanted, run_once, lambda run: progress_line(run, random_returns[run["env"]]))
    if kept.runs:
        print(f"\n{table(kept.content)}{disturbed_note(kept.runs)}")
        if arguments.picture is not None:
            picture(kept.content, arguments.picture)


def episode_limit(env: str) -> int:
    """Return the steps of the longest episode."""
    try:
        limit = gymnasium.spec(env).max_episode_steps
    except gymnasium.error.Error as error:
        refuse(f"{env}: {error}")
    if limit is None:
        refuse(f"{env} has no longest episode: a thousand of them may never end")
    return int(limit)


def random_return(env_id: str) -> float:
    """Return the mean return of random actions."""
    env = gymnasium.make(env_id)
    env.action_space.seed(0)
    total = 0.0
    for episode in range(RANDOM_EPISODES):
        env.reset(seed=episode)
        is_over = False
        while not is_over:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total += float(reward)
            is_over = terminated or truncated
    env.close()
    return total / RANDOM_EPISODES


# --- what is said about a run ----------------------------------------------------------------------------------


def judge(run: dict[str, Any], random: float) -> dict[str, Any]:
    """Say how well a run kept its best return, all as shares of the way from random to best."""
    returns = [evaluation[RETURN] for evaluation in run["evaluations"]]
    best = max(returns)
    if best <= random:  # nothing was learnt that could be kept
        return {"best": best, "stays": False, "ends_there": False, "share": 0.0, "lowest": 0.0}
    ways = [(one - random) / (best - random) for one in returns]
    after_best = ways[returns.index(best) :]
    reached = next(i for i, way in enumerate(ways) if way >= LEVEL)
    since = ways[reached:]
    return {
        "best": best,
        "stays": min(after_best) >= LEVEL,
        "ends_there": statistics.fmean(ways[-max(1, round(END_SHARE * len(ways))) :]) >= LEVEL,
        "share": sum(way >= LEVEL for way in since) / len(since),
        "lowest": min(after_best),
    }


def progress_line(run: dict[str, Any], random: float) -> str:
    found = judge(run, random)
    return (
        f"{run['env']} seed {run['seed']}: {run['episodes']:,} episodes and {run['updates']:,} updates in "
        f"{run['wall_s']:.0f} s; best {found['best']:,.1f}, then {'stays' if found['stays'] else 'falls'} "
        f"(lowest {found['lowest']:.0%}); {found['share']:.0%} of evaluations at 80%"
        f"{disturbance(run['cpu']['others_cores'])}"
    )


def table(content: dict[str, Any]) -> str:
    """Return a line for each task."""
    heads = ["task", "runs", "episodes", "updates", "updates/s", "return of random actions", "best return"]
    heads += ["runs that stay above 80% of it", "runs that end there", "evaluations there", "lowest after the best"]
    rows = []
    for env in dict.fromkeys(run["env"] for run in content["runs"]):
        runs, random = [run for run in content["runs"] if run["env"] == env], content["random_returns"][env]
        found = [judge(run, random) for run in runs]
        cells = [
            env,
            str(len(runs)),
            *(span([run[name] for run in runs], ",.0f") for name in ("episodes", "updates")),
        ]
        cells += [span([run["updates"] / run["wall_s"] for run in runs], ",.0f"), f"{random:,.0f}"]
        cells.append(span([one["best"] for one in found], ",.0f"))
        cells += [f"{sum(one[name] for one in found)} of {len(found)}" for name in ("stays", "ends_there")]
        rows.append([*cells, *(span([one[name] for one in found], ".0%") for name in ("share", "lowest"))])
    return markdown(heads, rows)


def picture(content: dict[str, Any], path: Path) -> None:
    """Draw every run: its evaluations against environment steps, and its level of 80%, dashed, once reached."""
    envs = list(dict.fromkeys(run["env"] for run in content["runs"]))
    figure = new_figure(4.4 * len(envs), 3.6)
    for place, env in enumerate(envs, 1):
        axes, random = figure.add_subplot(1, len(envs), place), content["random_returns"][env]
        axes.axhline(random, color="grey", linewidth=1, linestyle=":", label="random actions")
        for i, run in enumerate(run for run in content["runs"] if run["env"] == env):
            steps, returns = ([e[k] for e in run["evaluations"]] for k in (ENV_STEPS, RETURN))
            axes.plot(steps, returns, color=colour_of(i), linewidth=0.9, label=f"seed {run['seed']}")
            level, since = random + LEVEL * (max(returns) - random), steps[returns.index(max(returns))]
            axes.hlines(level, since, steps[-1], color=colour_of(i), linestyle="--", linewidth=1)
        dress(axes, "environment steps", "mean return of an evaluation", env)
    dashed = "dashed: 80% of the way from random actions to the best evaluation, from that one on"
    save(figure, path, f"{machine_text(content['machine'])}; {dashed}")


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--envs", nargs="+", default=["Pendulum-v1", "HalfCheetah-v5", "Hopper-v5"])
    parser.add_argument("--seeds", type=int, default=3, help="runs of each task, with the seeds 0, 1, 2, ...")
    parser.add_argument(
        "--episodes", type=int, default=1000, help="a run makes as many steps as so many of the longest episodes take"
    )
    parser.add_argument("--max-seconds", type=float, default=240.0, help="for each run, if it takes longer")
    parser.add_argument("--algo", choices=("sac", "td3", "ddpg"), default="sac")
    add_flags(parser)
    add_train_args(parser, "--spreeze-args")
    arguments = parser.parse_args()
    require(arguments.seeds >= 1 and arguments.episodes >= 1, "--seeds and --episodes must be at least 1")
    require(arguments.max_seconds > 0, "--max-seconds must be above 0")
    check_flags(arguments)
    return arguments


if __name__ == "__main__":
    main()
