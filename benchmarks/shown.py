"""Tables for the pages, of what `spreeze bench`, `spreeze tune` and `spreeze train` write: a function for each kind.

In: the content of one result, or of several of a kind; for single runs their files. Out: a Markdown table.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from functools import partial
from typing import Any

from formats import markdown, millions, number, seconds, span, thousands
from sources import read
from spreeze.adapt.recipes import FAMILIES

H200 = "benchmarks/results/h200"
TWO_CORES = "benchmarks/results"
# The abstract of arXiv 2312.06126 has the rates, "on a personal desktop"; hardware and tasks are as summaries of its
# experiments give them.
PAPER_RATES = {"sampling_hz": 15_000, "update_frame_hz": 370_000}
PAPER_HARDWARE = "a desktop with 12 cores and one GPU"
PAPER_NOTE = (
    "The paper (arXiv 2312.06126) states up to these rates and 73% less training time than other frameworks, on a "
    "desktop with a 12-core CPU and one GPU, on PyBullet tasks: other hardware and other tasks than here."
)


# --- spreeze bench learner, throughput, sampling, split --------------------------------------------------------


def learner(content: dict[str, Any]) -> str:
    head = ("batch", "engine", "updates/s", "frames/s", "GPU us an update", "kernels", "of floor", "deviation")
    rows = [
        [
            f"{figures['batch_size']:,}",
            figures["way"],
            f"{figures['update_hz']:,.0f}",
            millions(figures["update_frame_hz"]),
            number(figures["gpu_us"]),
            number(figures["kernels"], ".0f"),
            f"{figures['floor_share']:.1%}",
            number(figures["deviation"], ".3f"),
        ]
        for figures in content["figures"]
    ]
    return markdown(head, rows)


def window(content: dict[str, Any], rate: str) -> list[float]:
    """Return a rate of each second of the window of a throughput result."""
    return [line[rate] for line in content["training"]["measurements"][1:]]


def throughput(*contents: dict[str, Any]) -> str:
    columns = [_throughput_column(content) for content in contents]
    head = ["", *(f"{c['env']}, {c['training']['samplers']} samplers" for c in contents)]
    return markdown(head, [[name, *(column[name] for column in columns)] for name in columns[0]])


def _throughput_column(content: dict[str, Any]) -> dict[str, str]:
    training = content["training"]
    return {
        "batch": f"{training['batch_size']:,}",
        "update frames/s while sampling": span(window(content, "update_frame_hz"), millions),
        "updates/s": f"{training['update_hz']:,.0f}",
        "of the learner alone in the same run": f"{content['ratio_to_learner_alone']:.3f}",
        "env steps/s meanwhile": span(window(content, "sampling_hz"), ",.0f"),
        "bare loops on all cores in the same run, env steps/s": f"{content['raw_hz']:,.0f}",
        "of bare loops on all cores": f"{content['ratio_to_raw']:.3f}",
        "of those on as many cores as there are samplers": f"{content['ratio_to_used_cores']:.3f}",
        "of those, playing the policy that the training led to": f"{content['ratio_to_used_cores_with_policy']:.3f}",
        "bare loops that play the policy, of those with random actions": (
            f"{content['raw_policy_hz'] / content['raw_hz']:.3f}"
        ),
        "first update, s from the command on": f"{training['first_update_s']:.1f}",
        "learner's host on ingestion": f"{training['ingest_share']:.0%}",
        "GPU, CPU": f"{number(training['gpu_percent'], '.0f')}%, {training['cpu_percent']:.0f}%",
    }


def sampling(*contents: dict[str, Any]) -> str:
    names = {"envpool": ", EnvPool", "mujoco": ", stepped together"}
    head = ("environments of the sampler", "sampler, env steps/s", "bare loop of Gymnasium", "ratio", "memory")
    rows = [
        [
            f"{content['envs_per_sampler']} of {content['env']}{names.get(content.get('backend', ''), '')}",
            f"{sampler_median(content, 'sampling_hz'):,.0f}",
            f"{statistics.median(content['raw_hz']):,.0f}",
            span(content["ratios"], ".3f"),
            f"{max(sampler['resident_mb'] for sampler in content['samplers']):.0f} MB",
            f"{sampler_median(content, 'first_step_s'):.2f} s",
        ]
        for content in contents
    ]
    return markdown((*head, "first step"), rows)


def sampler_median(content: dict[str, Any], name: str) -> float:
    return float(statistics.median(sampler[name] for sampler in content["samplers"]))


def split(content: dict[str, Any]) -> str:
    names = ("batch_size", "whole_us", "critic_us", "actor_us", "exchange_us", "exchange_bytes")
    rows = [[*(f"{f[name]:,.0f}" for name in names), f"{f['predicted_gain']:.2f}"] for f in content["figures"]]
    head = ("batch", "update", "critics", "actor", "exchange", "bytes of an exchange", "predicted gain")
    return markdown(head, rows)


def paper(gpu: dict[str, Any], cpu: dict[str, Any]) -> str:
    """Show the rates that the paper states, and those of a `bench throughput` on a GPU and a `tune` on a CPU."""
    training, adapted = gpu["training"], cpu["adapted"]
    batch_sizes = (training["batch_size"], adapted["settings"]["batch_size"])
    described = [
        ('the paper, "up to"', PAPER_HARDWARE, "PyBullet tasks", "", PAPER_RATES),
        ("Spreeze", f"{gpu['cores']} cores, one NVIDIA H200", gpu["env"], f"{batch_sizes[0]:,}", training),
        ("Spreeze, as adapted", f"{cpu['cores']} cores, no GPU", cpu["env"], f"{batch_sizes[1]:,}", adapted),
    ]
    rows = [[*words, *(f"{rates[name]:,.0f}" for name in PAPER_RATES)] for *words, rates in described]
    return markdown(("system", "hardware", "task", "batch", "env steps/s", "update frames/s"), rows)


def tune(content: dict[str, Any]) -> str:
    """Show the objective of each cell as a share of the best, and what a run has adapted to."""
    cells = {(c["settings"]["samplers"], c["settings"]["batch_size"]): c["objective"] for c in content["cells"]}
    samplers, batch_sizes = (sorted({point[axis] for point in cells}) for axis in (0, 1))
    best = max(*cells.values(), content["adapted"]["objective"])
    rows = [[str(count), *(f"{cells[count, size] / best:.0%}" for size in batch_sizes)] for count in samplers]
    chosen = content["adapted"]["settings"]
    said = f"Adapted within {content['adapt_seconds']:.0f} s: {chosen['samplers']} sampler"
    said += f"{'s' * (chosen['samplers'] > 1)} and batch {chosen['batch_size']:,}, "
    said += f"{content['share_of_best']:.1%} of the best."
    return markdown(["samplers", *(f"batch {size:,}" for size in batch_sizes)], rows) + f"\n\n{said}"


# --- time to a return ------------------------------------------------------------------------------------------

LAST = 3  # evaluations whose mean is the return that a run has come to: one alone is luck


def solve(*contents: dict[str, Any]) -> str:
    """`spreeze bench solve`: the tasks, or the settings of one task."""
    tasks = [(task, content["runs"]) for content in contents for task in content["tasks"]]
    is_one = len({(task["env"], task["threshold"]) for task, _ in tasks}) == 1
    rows = []
    for task, runs in tasks:
        name = _settings_of(task) if is_one else f"{task['label']} to {task['threshold']:,.0f}"
        rows.append([name, *_times(task, runs)])
    return markdown(("setting" if is_one else "task", "median, s", "each seed"), rows)


def by_default(content: dict[str, Any]) -> str:
    """Of a comparison of settings: each algorithm as it is without any."""
    return solve({**content, "tasks": [task for task in content["tasks"] if not task["flags"]]})


def returns(content: dict[str, Any]) -> str:
    """`spreeze bench solve` with a threshold out of reach: what each setting had come to at the limit."""
    is_one = len({task["env"] for task in content["tasks"]}) == 1
    rows = []
    for task in content["tasks"]:
        own = [run for run in content["runs"] if run["label"] == task["label"]]
        each = [statistics.mean(point["mean_return"] for point in run["evaluations"][-LAST:]) for run in own]
        counts = [f"{statistics.median(run[name] for run in own):,.0f}" for name in ("env_steps", "updates")]
        name = _settings_of(task) if is_one else f"{task['env']}, {_settings_of(task)}"
        rows.append([name, ", ".join(f"{mean:,.0f}" for mean in each), *counts])
    limit_s = content["tasks"][0]["limit_s"]
    return markdown(("setting", f"return after {limit_s:.0f} s, each seed", "env steps", "updates"), rows)


def families() -> str:
    """What single environments have instead of the defaults: recipes.py's."""
    wheres = {None: "anywhere", "cpu": "a CPU", "cuda": "a GPU"}
    rows = [
        [f"`{family.pattern}`", wheres[family.device], f"`{_flags(family.settings)}`", family.reason]
        for family in FAMILIES
    ]
    return markdown(("environments", "learner on", "settings", "because"), rows)


def _times(task: dict[str, Any], runs: list[dict[str, Any]]) -> list[str]:
    """Return the median time to the threshold, and that of each seed."""
    own = [run for run in runs if run["label"] == task["label"]]
    each = ", ".join(seconds(run["wall_s"] if run["solved"] else None, task["limit_s"]) for run in own)
    return [f"{'> ' if task['median_is_bound'] else ''}{task['median_s']:.1f}", each]


def _settings_of(task: dict[str, Any]) -> str:
    words = _flags(task["flags"])
    return (task["algo"] or "sac") + (f" `{words}`" if words else "")


def _flags(settings: Mapping[str, bool | float | str]) -> str:
    return " ".join(_flag(name.replace("_", "-"), value) for name, value in settings.items())


def _flag(name: str, value: bool | float | str) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name} {value}"


def static_settings(content: dict[str, Any]) -> str:
    """`spreeze bench solve` with adaptation and with static settings: how far each is from the best static ones."""
    best_s, rows = min(task["median_s"] for task in content["tasks"] if "adapt" in task["flags"]), []
    for task in content["tasks"]:
        name = f"{task['name']} (`{_flags(task['flags']) or '--fresh'}`)"
        rows.append([name, *_times(task, content["runs"]), f"{task['median_s'] / best_s:.2f}"])
    return markdown(("settings", "median, s", "each seed", "to the best static ones"), rows)


def split_runs(content: dict[str, Any]) -> str:
    """Runs of actor and critics in one process and in two: time to the return, rates, what crossed."""
    names = ("critics, actor", "reached after", "updates/s, critics", "updates/s, actor", "crossing")
    rows = []
    for run in content["runs"]:
        name, last, at_s = run["name"], run["last"], run["time_to_target_s"]
        spent_s = last["wall_s"] - run["learning_since_s"]
        cells = [name if "batch" in name else f"{name}, batch {last['batch_size']:,}"]
        best = f"{run['best_return']:,.0f} at best in {last['wall_s']:.0f} s"
        cells += [best if at_s is None else f"{at_s:.1f} s", f"{last['updates'] / spent_s:,.0f}"]
        if last["exchanged_bytes"]:
            shares = [f"{last[field] / spent_s:.1%}" for field in ("exchange_s", "actor_exchange_s")]
            crossing = f"{last['exchanged_bytes'] / spent_s / 1e6:.0f} MB/s"
            rows.append([*cells, f"{last['actor_updates'] / spent_s:,.0f}", crossing, ", ".join(shares)])
        else:
            rows.append([*cells, "the same", "-", "-"])
    return markdown((*names, "of a side's time for it"), rows)


# --- single runs of `spreeze train`, of which the summary or the evaluations were kept ----------------------------

SEEDS = (0, 1, 2)


def halfcheetah() -> str:
    settings = {
        "adapted (`--fresh`)": [f"adapted-{seed}" for seed in SEEDS],
        "static defaults (`--no-adapt`: 14 samplers, batch 8192)": [f"static-{seed}" for seed in SEEDS],
        "`--no-adapt --samplers 1 --batch-size 256`": ["1-sampler-batch-256"],
        "`--no-adapt --samplers 4 --batch-size 256`": ["4-samplers-batch-256"],
        "`--no-adapt --samplers 32 --batch-size 32768`": ["32-samplers-batch-32768"],
    }
    rows = []
    for words, names in settings.items():
        summaries = [read(f"{H200}/halfcheetah-{name}-summary.json") for name in names]
        times = [summary["time_to_target_s"] for summary in summaries]
        median = f"{statistics.median(times):.1f}" if len(times) > 1 else "-"
        frames = span([summary["update_frame_hz"] / 1e6 for summary in summaries], ".2f")
        rows.append([words, median, ", ".join(map(seconds, times)), frames])
    return markdown(("settings", "median, s", "each seed", "million update frames/s"), rows)


def environments() -> str:
    """Tasks with slow and with quick steps, in more and in fewer environments, until a return was reached."""
    compared = [
        ("Ant-v5", "14 x 8", 4500, "ant-8-envs"),
        ("Ant-v5", "14 x 2", 4500, "ant-2-envs"),
        ("Humanoid-v5", "14 x 32", 5000, "humanoid-n-step-3"),
        ("Humanoid-v5", "14 x 8", 5000, "humanoid-8-envs"),
        ("HalfCheetah-v5", "14 x 32", 10000, "halfcheetah-static-0"),
        ("HalfCheetah-v5", "14 x 8", 10000, "halfcheetah-8-envs"),
    ]
    rows = []
    for task, count, target, name in compared:
        evaluations = read(f"{H200}/{name}-evaluations.jsonl")
        used = next((line for line in evaluations if line["mean_return"] >= target), evaluations[-1])
        each_hz = used["env_steps"] / used["wall_s"] / math.prod(map(int, count.split(" x ")))
        when = [f"{each_hz:,.0f}", f"{target:,}", reached(evaluations, target)]
        rows.append([task, count, *when, thousands(used["env_steps"]), thousands(used["updates"])])
    head = ("task", "samplers x environments", "steps/s in each", "return", "reached after, s")
    return markdown((*head, "env steps", "updates"), rows)


def four_cores() -> str:
    """Ant-v5 in 3 x 32 environments on four cores and a share of the GPU, with different options."""
    names = {"defaults": "default", "`--tau 0.03`": "tau03", "`--batch-size 2048`": "batch2048"}
    rows = []
    for setting, name in {**names, "`--replay-rows 1000000`": "replay1m"}.items():
        evaluations = read(f"{H200}/ant-4-cores-{name}-evaluations.jsonl")
        steps, updates = (thousands(evaluations[-1][counter]) for counter in ("env_steps", "updates"))
        rows.append([setting, reached(evaluations, 3000), reached(evaluations, 4500), steps, updates])
    return markdown(("setting", "3,000 after, s", "4,500 after, s", "env steps in all", "updates in all"), rows)


def reached(evaluations: list[dict[str, Any]], target: float) -> str:
    """Return when a run was at its target, or how far it came."""
    times = [line["wall_s"] for line in evaluations if line["mean_return"] >= target]
    if times:
        return f"{times[0]:.1f}"
    best = max(line["mean_return"] for line in evaluations)
    return f"not within {evaluations[-1]['wall_s']:.0f} ({best:,.0f})"


def best_returns(files: Mapping[str, str]) -> str:
    """The best evaluation of each run: when it was, and how much had been done at the last one."""
    rows = []
    for words, file in files.items():
        evaluations = read(file)
        best, first, last = max(evaluations, key=lambda line: line["mean_return"]), evaluations[0], evaluations[-1]
        update_hz = (last["updates"] - first["updates"]) / (last["wall_s"] - first["wall_s"])
        row = [words, f"{best['mean_return']:,.0f}", f"{best['wall_s']:.1f}", f"{last['wall_s']:.1f}"]
        rows.append([*row, thousands(last["env_steps"]), f"{update_hz:,.0f}"])
    return markdown(("run", "best return", "after, s", "last evaluation, s", "env steps", "updates/s"), rows)


tasks = partial(
    best_returns,
    {
        "HalfCheetah-v5 with TD3, to 8,000": f"{H200}/halfcheetah-td3-evaluations.jsonl",
        "HalfCheetah-v5 with DDPG, to 6,000": f"{H200}/halfcheetah-ddpg-evaluations.jsonl",
    },
)
ten_cores = partial(
    best_returns,
    {
        "sac": f"{H200}/humanoid-10-cores-evaluations.jsonl",
        "sac `--n-step 3`": f"{H200}/humanoid-n-step-3-10-cores-evaluations.jsonl",
        "sac `--normalise-observations`": f"{H200}/humanoid-normalised-10-cores-evaluations.jsonl",
    },
)
single_options = partial(
    best_returns,
    {
        "HalfCheetah-v5 `--layer-norm`": f"{H200}/halfcheetah-layer-norm-evaluations.jsonl",
        "Humanoid-v5 `--n-step 1`": f"{H200}/humanoid-evaluations.jsonl",
        "Humanoid-v5 `--n-step 3`": f"{H200}/humanoid-n-step-3-evaluations.jsonl",
        "Ant-v5 `--n-step 3`": f"{H200}/ant-n-step-3-evaluations.jsonl",
    },
)
bullet = partial(
    best_returns,
    {
        "HopperBulletEnv-v0": f"{TWO_CORES}/hopper-bullet-2-cores-evaluations.jsonl",
        "InvertedPendulumSwingupBulletEnv-v0": f"{TWO_CORES}/swingup-bullet-2-cores-evaluations.jsonl",
    },
)


def gpu_and_cpu(*summaries: dict[str, Any]) -> str:
    """Critics on the GPU and the actor on the CPU: from the defaults, and from what that run had found."""
    rows = [
        [start, f"{run['best_return']:,.0f}", seconds(run["time_to_target_s"]), f"{run['wall_s']:.0f}"]
        for start, run in zip(("the defaults", "the settings that this run had found"), summaries, strict=True)
    ]
    return markdown(("start from", "best return", "10,000 after, s", "ended after, s"), rows)
