"""Tables of single runs of `spreeze train`, of which the summary or the evaluations were kept.

In: the results named in each row. Out: Markdown tables for docs/adaptation.md and docs/recipes.md.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

from shown import markdown, thousands
from sources import read, source_of

H200 = "benchmarks/results/h200"
SEEDS = (0, 1, 2)

HALFCHEETAH = {
    "adapted (`--fresh`)": [f"halfcheetah-adapted-{seed}-summary.json" for seed in SEEDS],
    "static defaults (`--no-adapt`: 14 samplers, batch 8192)": [
        f"halfcheetah-static-{seed}-summary.json" for seed in SEEDS
    ],
    "`--no-adapt --samplers 1 --batch-size 256`": ["halfcheetah-1-sampler-batch-256-summary.json"],
    "`--no-adapt --samplers 4 --batch-size 256`": ["halfcheetah-4-samplers-batch-256-summary.json"],
    "`--no-adapt --samplers 32 --batch-size 32768`": ["halfcheetah-32-samplers-batch-32768-summary.json"],
}
TASKS = {
    ("HalfCheetah-v5, td3", 8000): ["halfcheetah-td3-evaluations.jsonl"],
    ("HalfCheetah-v5, ddpg", 6000): ["halfcheetah-ddpg-evaluations.jsonl"],
}
ENVIRONMENTS = {
    ("Ant-v5", "14 x 8", 4500): "ant-8-envs-evaluations.jsonl",
    ("Ant-v5", "14 x 2", 4500): "ant-2-envs-evaluations.jsonl",
    ("Humanoid-v5", "14 x 32", 5000): "humanoid-n-step-3-evaluations.jsonl",
    ("Humanoid-v5", "14 x 8", 5000): "humanoid-8-envs-evaluations.jsonl",
    ("HalfCheetah-v5", "14 x 32", 10000): "halfcheetah-static-0-evaluations.jsonl",
    ("HalfCheetah-v5", "14 x 8", 10000): "halfcheetah-8-envs-evaluations.jsonl",
}
FOUR_CORES = {
    "defaults": "ant-4-cores-default-evaluations.jsonl",
    "`--tau 0.03`": "ant-4-cores-tau03-evaluations.jsonl",
    "`--batch-size 2048`": "ant-4-cores-batch2048-evaluations.jsonl",
    "`--replay-rows 1000000`": "ant-4-cores-replay1m-evaluations.jsonl",
}
TEN_CORES = {
    "sac": "humanoid-10-cores-evaluations.jsonl",
    "sac `--n-step 3`": "humanoid-n-step-3-10-cores-evaluations.jsonl",
    "sac `--normalise-observations`": "humanoid-normalised-10-cores-evaluations.jsonl",
}


def halfcheetah() -> str:
    """HalfCheetah-v5 to 10,000 with different settings, seconds of each seed."""
    rows = []
    for settings, files in HALFCHEETAH.items():
        times = [read(f"{H200}/{file}")["time_to_target_s"] for file in files]
        median = f"{statistics.median(times):.1f}" if len(times) > 1 else "-"
        rows.append([settings, median, ", ".join(f"{time_s:.1f}" for time_s in times)])
    return markdown(("settings", "median, s", "each seed"), rows)


def tasks() -> str:
    """Other tasks to a return, seconds of each seed."""
    rows = []
    for (task, target), files in TASKS.items():
        paths = [f"{H200}/{file}" for file in files]
        commands = dict.fromkeys(f"`{source_of(path).command}`" for path in paths)
        rows.append(
            [task, f"{target:,}", ", ".join(reached(read(path), target) for path in paths), ", ".join(commands)]
        )
    return markdown(("task", "return", "seconds, seeds 0, 1, ...", "command"), rows)


def environments() -> str:
    """Tasks with slow and with quick steps, in more and in fewer environments, until a return was reached."""
    rows = []
    for (task, count, target), file in ENVIRONMENTS.items():
        evaluations = read(f"{H200}/{file}")
        used = next((line for line in evaluations if line["mean_return"] >= target), evaluations[-1])
        each_hz = used["env_steps"] / used["wall_s"] / math.prod(map(int, count.split(" x ")))
        rows.append(
            [
                task,
                count,
                f"{each_hz:,.0f}",
                f"{target:,}",
                reached(evaluations, target),
                thousands(used["env_steps"]),
                thousands(used["updates"]),
            ]
        )
    heads = (
        "task",
        "samplers x environments",
        "steps/s in each",
        "return",
        "reached after, s",
        "env steps",
        "updates",
    )
    return markdown(heads, rows)


def four_cores() -> str:
    """Ant-v5 in 3 x 32 environments on four cores and a share of the GPU, with different options."""
    rows = []
    for setting, file in FOUR_CORES.items():
        evaluations = read(f"{H200}/{file}")
        last = evaluations[-1]
        steps, updates = thousands(last["env_steps"]), thousands(last["updates"])
        rows.append([setting, reached(evaluations, 3000), reached(evaluations, 4500), steps, updates])
    return markdown(("setting", "3,000 after, s", "4,500 after, s", "env steps in all", "updates in all"), rows)


def reached(evaluations: list[dict[str, Any]], target: float) -> str:
    """Say when a run was at its target, or how far it came."""
    times = [line["wall_s"] for line in evaluations if line["mean_return"] >= target]
    if times:
        return f"{times[0]:.1f}"
    best = best_of(evaluations)
    return f"not within {evaluations[-1]['wall_s']:.0f} ({best['mean_return']:,.0f})"


def best_of(evaluations: list[dict[str, Any]]) -> dict[str, Any]:
    return max(evaluations, key=lambda line: float(line["mean_return"]))


def ten_cores() -> str:
    """Humanoid-v5 on ten cores beside another training, with different options."""
    rows = []
    for setting, file in TEN_CORES.items():
        evaluations = read(f"{H200}/{file}")
        best = best_of(evaluations)
        rows.append(
            [
                setting,
                f"{best['mean_return']:,.0f} after {best['wall_s']:.0f} s",
                thousands(evaluations[-1]["env_steps"]),
            ]
        )
    return markdown(("setting", "best return", "env steps at the last evaluation"), rows)
