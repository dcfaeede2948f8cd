"""Tables for the pages, of the JSON that `spreeze bench` and `spreeze tune` write: a function for each kind.

In: the content of one result, or of several of a kind. Out: a Markdown table.
"""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sitting import span
from spreeze.adapt.recipes import FAMILIES


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [f"| {' | '.join(line)} |" for line in [head, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def millions(rate: float) -> str:
    return f"{rate / 1e6:.3g}M"


def thousands(rate: float) -> str:
    return f"{round(rate, -3):,.0f}"


def seconds(value: float | None, limit: float | None = None) -> str:
    """Say a time to a return; one that was not reached is only known to be longer than the limit."""
    if value is not None:
        return f"{value:.1f}"
    return "-" if limit is None else f"> {limit:.0f}"


# --- spreeze bench learner, throughput, sampling, split --------------------------------------------------------


def learner(content: dict[str, Any]) -> str:
    head = ("batch", "way", "updates/s", "frames/s", "GPU us an update", "kernels", "of floor", "deviation")
    return markdown(head, [_learner_row(figures) for figures in content["figures"]])


def _learner_row(figures: dict[str, Any]) -> list[str]:
    return [
        f"{figures['batch_size']:,}",
        figures["way"],
        f"{figures['update_hz']:,.0f}",
        millions(figures["update_frame_hz"]),
        "-" if figures["gpu_us"] is None else f"{figures['gpu_us']:,.0f}",
        "-" if figures["kernels"] is None else f"{figures['kernels']:.0f}",
        f"{figures['floor_share']:.1%}",
        "-" if figures["deviation"] is None else f"{figures['deviation']:.3f}",
    ]


def window(content: dict[str, Any], rate: str) -> list[float]:
    """Return a rate of each second of the window of a throughput result."""
    return [line[rate] for line in content["training"]["measurements"][1:]]


def throughput(*contents: dict[str, Any]) -> str:
    columns = [_throughput_column(content) for content in contents]
    head = ["", *(f"{c['env']}, {c['training']['samplers']} samplers" for c in contents)]
    return markdown(head, [[name, *(column[name] for column in columns)] for name in columns[0]])


def _throughput_column(content: dict[str, Any]) -> dict[str, str]:
    training = content["training"]
    gpu = training["gpu_percent"]
    return {
        "batch": f"{training['batch_size']:,}",
        "update frames/s while sampling": _in_millions(window(content, "update_frame_hz")),
        "updates/s": f"{training['update_hz']:,.0f}",
        "of the learner alone in the same run": f"{content['ratio_to_learner_alone']:.3f}",
        "env steps/s meanwhile": span(window(content, "sampling_hz"), ",.0f"),
        "bare loops on all cores in the same run, env steps/s": f"{content['raw_hz']:,.0f}",
        "of bare loops on all cores": f"{content['ratio_to_raw']:.3f}",
        "of those on as many cores as there are samplers": f"{content['ratio_to_used_cores']:.3f}",
        "of those, playing the policy that the training led to": f"{content['ratio_to_used_cores_with_policy']:.3f}",
        "first update, s from the command on": f"{training['first_update_s']:.1f}",
        "learner's host on ingestion": f"{training['ingest_share']:.0%}",
        "GPU, CPU": f"{'-' if gpu is None else f'{gpu:.0f}%'}, {training['cpu_percent']:.0f}%",
    }


def _in_millions(rates: Sequence[float]) -> str:
    return f"{millions(statistics.median(rates))} ({millions(min(rates))} to {millions(max(rates))})"


def sampling(*contents: dict[str, Any]) -> str:
    head = (
        "environments of the sampler",
        "sampler, env steps/s",
        "bare loop of Gymnasium",
        "ratio",
        "memory",
        "first step",
    )
    return markdown(head, map(_sampling_row, contents))


def _sampling_row(content: dict[str, Any]) -> list[str]:
    samplers = content["samplers"]
    backend = {"envpool": ", EnvPool", "mujoco": ", stepped together"}.get(content.get("backend", ""), "")
    return [
        f"{content['envs_per_sampler']} of {content['env']}{backend}",
        f"{statistics.median(sampler['sampling_hz'] for sampler in samplers):,.0f}",
        f"{statistics.median(content['raw_hz']):,.0f}",
        span(content["ratios"], ".3f"),
        f"{max(sampler['resident_mb'] for sampler in samplers):.0f} MB",
        f"{statistics.median(sampler['first_step_s'] for sampler in samplers):.2f} s",
    ]


def split(content: dict[str, Any]) -> str:
    """Microseconds of each part of an update."""
    names = ("whole_us", "critic_us", "actor_us", "exchange_us")
    rows = [
        [f"{f['batch_size']:,}", *(f"{f[name]:,.0f}" for name in names), f"{f['predicted_gain']:.2f}"]
        for f in content["figures"]
    ]
    return markdown(("batch", "update", "critics", "actor", "exchange", "predicted gain"), rows)


# --- spreeze tune ----------------------------------------------------------------------------------------------


def tune(content: dict[str, Any]) -> str:
    """Show the objective of each cell as a share of the best, and what a run has adapted to."""
    cells = {(c["settings"]["samplers"], c["settings"]["batch_size"]): c["objective"] for c in content["cells"]}
    samplers, batch_sizes = (sorted({point[axis] for point in cells}) for axis in (0, 1))
    best = max(*cells.values(), content["adapted"]["objective"])
    rows = [[str(number), *(f"{cells[number, size] / best:.0%}" for size in batch_sizes)] for number in samplers]
    chosen = content["adapted"]["settings"]
    said = (
        f"Adapted within {content['adapt_seconds']:.0f} s to {chosen['samplers']} samplers and batch "
        f"{chosen['batch_size']:,}: {content['share_of_best']:.1%} of the best."
    )
    return markdown(["samplers", *(f"batch {size:,}" for size in batch_sizes)], rows) + f"\n\n{said}"


# --- time to a return ------------------------------------------------------------------------------------------

LAST = 3  # evaluations whose mean is the return that a run has come to: one alone is luck


def solve(content: dict[str, Any]) -> str:
    """`spreeze bench solve`: the tasks, or the settings of one task."""
    is_one = len({(task["env"], task["threshold"]) for task in content["tasks"]}) == 1
    rows = []
    for task in content["tasks"]:
        own = [run for run in content["runs"] if run["label"] == task["label"]]
        each = ", ".join(seconds(run["wall_s"] if run["solved"] else None, task["limit_s"]) for run in own)
        name = _settings_of(task) if is_one else f"{task['label']} to {task['threshold']:,.0f}"
        rows.append([name, f"{'> ' if task['median_is_bound'] else ''}{task['median_s']:.1f}", each])
    return markdown(("setting" if is_one else "task", "median, s", "each seed"), rows)


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


def _settings_of(task: dict[str, Any]) -> str:
    words = _flags(task["flags"])
    return (task["algo"] or "sac") + (f" `{words}`" if words else "")


def _flags(settings: Mapping[str, bool | float | str]) -> str:
    return " ".join(_flag(name.replace("_", "-"), value) for name, value in settings.items())


def _flag(name: str, value: bool | float | str) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name} {value}"


def beside_static(content: dict[str, Any]) -> str:
    """Time to a return with different settings, in turn for each seed: adaptation_beside_static.py's."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for run in content["runs"]:
        by_name.setdefault(run["name"], []).append(run)
    medians = {name: statistics.median(map(_seconds_of, runs)) for name, runs in by_name.items()}
    best = min(median for name, median in medians.items() if name != "adapted")
    rows = []
    for name, runs in by_name.items():
        each = ", ".join(seconds(run["time_to_target_s"], run["wall_s"]) for run in runs)
        flags = shlex.join(runs[0]["flags"])
        rows.append([f"{name} (`{flags}`)", f"{medians[name]:.1f}", each, f"{medians[name] / best:.2f}"])
    return markdown(("settings", "median, s", "each seed", "to the best static ones"), rows)


def _seconds_of(run: dict[str, Any]) -> float:
    """A run that did not reach its target counts with the time it had: too little."""
    reached = run["time_to_target_s"]
    return float(run["wall_s"] if reached is None else reached)


def split_runs(content: dict[str, Any]) -> str:
    """Runs of actor and critics in one process and in two: time to the return, rates, what crossed."""
    head = (
        "critics, actor",
        "reached after",
        "updates/s, critics",
        "updates/s, actor",
        "crossing",
        "of a side's time for it",
    )
    return markdown(head, [_split_row(name, run) for name, run in content["runs"].items()])


def _split_row(name: str, run: dict[str, Any]) -> list[str]:
    last = run["last"]
    spent_s = last["wall_s"] - run["learning_since_s"]
    reached = run["time_to_target_s"]
    is_apart = last["exchanged_bytes"] > 0
    shares = [last[field] / spent_s for field in ("exchange_s", "actor_exchange_s")]
    return [
        f"{name}, batch {last['batch_size']:,}" if "batch" not in name else name,
        f"{run['best_return']:,.0f} at best in {last['wall_s']:.0f} s" if reached is None else f"{reached:.1f} s",
        f"{last['updates'] / spent_s:,.0f}",
        f"{last['actor_updates'] / spent_s:,.0f}" if is_apart else "the same",
        f"{last['exchanged_bytes'] / spent_s / 1e6:.0f} MB/s" if is_apart else "-",
        ", ".join(f"{share:.1%}" for share in shares) if is_apart else "-",
    ]
