"""The tables of the README, "Measured": what was measured in words, and the figures from the results.

In: the results named by each row. Out: a table for each machine. The words are written here and nowhere else; each
figure is computed, and the command is that which writes the result.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cost_of_showing import LOOKED_AT, WITH, quartiles, ratios
from peer_rows import learning, learning_beside, throughput, throughput_beside
from shown import markdown, millions, thousands, window
from sitting import span
from sources import common_line, read, source_of


@dataclass(frozen=True)
class Row:
    """One line of a table. The functions take the content of each file, in their order."""

    what: str
    files: Sequence[str]
    """Below benchmarks/results."""
    figure: Callable[..., str]
    beside: Callable[..., str] | str = ""

    def paths(self) -> list[str]:
        return [f"benchmarks/results/{file}" for file in self.files]

    def cells(self) -> list[str]:
        """Return what the README shows."""
        contents = [read(path) for path in self.paths()]
        beside = self.beside if isinstance(self.beside, str) else self.beside(*contents)
        commands = dict.fromkeys(f"`{source_of(path).command}`" for path in self.paths())
        return [self.what, self.figure(*contents), beside, ", ".join(commands)]


def two_cores() -> str:
    return table_of(TWO_CORES)


def h200() -> str:
    return table_of(H200)


def table_of(rows: Sequence[Row]) -> str:
    """Return a table with the machine that all its rows were measured on above it."""
    paths = [path for row in rows for path in row.paths()]
    table = markdown(("what", "Spreeze", "beside it", "command"), [row.cells() for row in rows])
    return f"{common_line(paths)}:\n\n{table}"


# --- time to a return ------------------------------------------------------------------------------------------


def bold(text: str) -> str:
    return f"**{text}**"


def reached_s(content: Any, target: float | None = None) -> float:
    """Return when a run was at its target: of a summary, or of evaluations and a target; refuse one that was not."""
    if isinstance(content, dict):
        return float(content["time_to_target_s"])
    return float(next(line["wall_s"] for line in content if line["mean_return"] >= (target or 0)))


def each(times: Sequence[float]) -> str:
    return ", ".join(f"{time_s:.1f}" for time_s in times) + " s"


def median_of_task(content: dict[str, Any], label: str) -> float:
    return float(next(task["median_s"] for task in content["tasks"] if task["label"] == label))


def tasks_figure(*solved: dict[str, Any]) -> str:
    three, ant, humanoid = solved
    wanted = [(three, "HalfCheetah-v5"), (three, "Hopper-v5"), (three, "Walker2d-v5"), (ant, "Ant-v5")]
    medians = [median_of_task(content, label) for content, label in [*wanted, (humanoid, "Humanoid-v5")]]
    return bold(", ".join(f"{median:.1f} s" for median in medians))


def split_figure(runs: dict[str, Any], _parts: dict[str, Any]) -> str:
    apart = [run for name, run in runs["runs"].items() if name.startswith("critics and actor on cuda:0")]
    return bold(each([run["time_to_target_s"] for run in apart]))


# --- rates -----------------------------------------------------------------------------------------------------


def sampler_rate(content: dict[str, Any]) -> float:
    return float(statistics.median(sampler["sampling_hz"] for sampler in content["samplers"]))


def sampler_weight(content: dict[str, Any]) -> str:
    first_step_s = statistics.median(sampler["first_step_s"] for sampler in content["samplers"])
    return bold(f"{max(sampler['resident_mb'] for sampler in content['samplers']):.0f} MB, {first_step_s:.2f} s")


def frames_figure(content: dict[str, Any]) -> str:
    rates = window(content, "update_frame_hz")
    return f"**{millions(statistics.median(rates))}** ({millions(min(rates))} to {millions(max(rates))})"


def steps_figure(content: dict[str, Any]) -> str:
    rates = window(content, "sampling_hz")
    return f"**{thousands(statistics.median(rates))}** ({thousands(min(rates))} to {thousands(max(rates))})"


def steps_beside(content: dict[str, Any]) -> str:
    return (
        f"{content['ratio_to_raw']:.2f} of bare environment loops on all cores in the same run, "
        f"{content['ratio_to_used_cores']:.2f} of those on as many cores as there are samplers"
    )


def first_update(*contents: dict[str, Any]) -> str:
    times = [content["training"]["first_update_s"] for content in contents]
    return f"**{times[0]:.1f} s** the first time on a machine, {min(times[1:]):.1f} s later"


def learner_of(content: dict[str, Any], batch_size: int, way: str) -> dict[str, Any]:
    own = [figure for figure in content["figures"] if (figure["batch_size"], figure["way"]) == (batch_size, way)]
    return dict(own[0])


def learner_beside(content: dict[str, Any], batch_size: int, rate: str, form: Callable[[float], str]) -> str:
    eager, graph = (form(learner_of(content, batch_size, way)[rate]) for way in ("eager", "graph"))
    return f"plain PyTorch {eager}, as a CUDA graph {graph}"


def whole(rate: float) -> str:
    return f"{rate:,.0f}"


# --- what a run survives, and what it costs to look ------------------------------------------------------------


def soak_figure(content: dict[str, Any]) -> str:
    grown = [ratio for _, _, ratio in content["memory"].values()]
    left = len(content["left_behind"])
    return (
        f"{sum(content['kills'].values())} kills; memory of each role in the last third **{min(grown):.3f} to "
        f"{max(grown):.3f}** of that in the first; {left or 'nothing'} left behind"
    )


def checkpoint_figure(content: dict[str, Any]) -> str:
    shares = [figure["ratio"] for figure in content["checkpoints"]]
    return f"**{statistics.median(shares):.3f}** ({min(shares):.3f} to {max(shares):.3f}) of those beside it"


def checkpoint_beside(content: dict[str, Any]) -> str:
    times = [figure["seconds"] for figure in content["checkpoints"]]
    return f"{len(times)} checkpoints of {min(times):.0f} to {max(times):.0f} s"


def showing_figure(content: dict[str, Any]) -> str:
    share, _, rest = quartiles(ratios(content["windows"], WITH, "update_hz")).partition(" ")
    return f"**{share}** {rest} of those without"


def showing_beside(content: dict[str, Any]) -> str:
    share = statistics.median(ratios(content["windows"], LOOKED_AT, "update_hz"))
    return f"{share:.3f} with the page open in Chromium on the same cores"


# --- the rows --------------------------------------------------------------------------------------------------

TWO_CORES = [
    Row(
        "Pendulum-v1 to a return of -200 from the command on, median over seeds",
        ["peers-pendulum-2-cores.json"],
        learning,
        lambda content: f"{learning_beside(content)}; Spreeze's defaults were chosen on this task and HalfCheetah",
    ),
    Row(
        "Hopper-v5 to a return of 1,000 from the command on, median over seeds",
        ["peers-hopper-2-cores.json"],
        learning,
        lambda content: (
            f"{learning_beside(content)}; Spreeze's recipe for Hopper (rewards of 5 steps, discount 0.995) was "
            "chosen on this task, theirs are the defaults of their libraries"
        ),
    ),
    Row(
        "updates/s at batch 256 while sampling, HalfCheetah-v5",
        ["peers-throughput-256-2-cores.json"],
        lambda content: throughput(content, "update_hz"),
        lambda content: throughput_beside(content, "update_hz"),
    ),
    Row(
        "env steps/s meanwhile",
        ["peers-throughput-256-2-cores.json"],
        lambda content: throughput(content, "sampling_hz"),
        lambda content: throughput_beside(content, "sampling_hz"),
    ),
    Row(
        "one sampler with policy and ring, HalfCheetah-v5",
        ["sampling-halfcheetah.json"],
        lambda content: f"**{sampler_rate(content):,.0f} env steps/s**",
        lambda content: f"{span(content['ratios'], '.3f')} of the bare environment loop",
    ),
    Row(
        "its memory with 4 environments, and time to its first step",
        ["sampling-halfcheetah-4-envs.json"],
        sampler_weight,
    ),
    Row(
        "half an hour of training with processes killed at random",
        ["soak-2-cores.json"],
        soak_figure,
        "[docs/reliability.md](docs/reliability.md#measured)",
    ),
    Row(
        "updates/s with viewer and dashboard, HalfCheetah-v5",
        ["cost-of-showing-2-cores.json"],
        showing_figure,
        showing_beside,
    ),
]

SEEDS = (0, 1, 2)

H200 = [
    Row(
        "HalfCheetah-v5 to the return that the best peer has at the end of its time, one seed",
        ["h200/peers-halfcheetah.json"],
        learning,
        learning_beside,
    ),
    Row(
        "update frames/s at batch 8192 while sampling, HalfCheetah-v5, beside peers",
        ["h200/peers-throughput-8192.json"],
        lambda content: throughput(content, "update_frame_hz"),
        lambda content: throughput_beside(content, "update_frame_hz"),
    ),
    Row(
        "env steps/s meanwhile",
        ["h200/peers-throughput-8192.json"],
        lambda content: throughput(content, "sampling_hz"),
        lambda content: throughput_beside(content, "sampling_hz"),
    ),
    Row(
        "HalfCheetah-v5 to a return of 10,000 from the command on, SAC, seeds 0, 1, 2",
        [f"h200/halfcheetah-{way}-{seed}-summary.json" for way in ("adapted", "static") for seed in SEEDS],
        lambda *runs: bold(each([reached_s(run) for run in runs[:3]])),
        lambda *runs: f"with the static defaults (`--no-adapt`) {each([reached_s(run) for run in runs[3:]])}",
    ),
    Row(
        "the same with 32 samplers and batch 32,768, seed 0",
        ["h200/halfcheetah-32-samplers-batch-32768-summary.json"],
        lambda run: each([reached_s(run)]),
    ),
    Row(
        "HalfCheetah-v5 to 10,000, Hopper-v5 to 3,000, Walker2d-v5 to 4,000, Ant-v5 to 4,500, Humanoid-v5 to 5,000, "
        "medians of seeds 0, 1, 2",
        [f"h200/solve-{name}.json" for name in ("halfcheetah-hopper-walker2d", "ant", "humanoid")],
        tasks_figure,
        "each seed is in [docs/recipes.md](docs/recipes.md#on-a-gpu)",
    ),
    Row(
        "HalfCheetah-v5 with TD3 to 8,000, with DDPG to 6,000, one seed",
        ["h200/halfcheetah-td3-summary.json", "h200/halfcheetah-ddpg-summary.json"],
        lambda *runs: bold(each([reached_s(run) for run in runs])),
    ),
    Row(
        "actor and critics in two processes on the one GPU, to 10,000, seeds 0, 1, 2",
        ["h200/split-halfcheetah.json", "h200/split-parts.json"],
        split_figure,
        lambda _runs, parts: (
            f"{parts['figures'][-1]['predicted_gain']:.2f} times the updates on two GPUs, predicted from the "
            "measured parts ([docs/two-devices.md](docs/two-devices.md))"
        ),
    ),
    Row(
        "update frames/s at batch 8192 while sampling, HalfCheetah-v5",
        ["h200/throughput-halfcheetah.json"],
        frames_figure,
        lambda content: f"{content['ratio_to_learner_alone']:.3f} of the learner alone",
    ),
    Row("env steps/s meanwhile", ["h200/throughput-halfcheetah.json"], steps_figure, steps_beside),
    Row(
        "updates/s while a checkpoint of 5M transitions is saved",
        ["h200/cost-of-checkpoints.json"],
        checkpoint_figure,
        checkpoint_beside,
    ),
    Row(
        "learner alone, updates/s at batch 256",
        ["h200/learner.json"],
        lambda content: bold(whole(learner_of(content, 256, "fused")["update_hz"])),
        lambda content: learner_beside(content, 256, "update_hz", whole),
    ),
    Row(
        "learner alone, update frames/s at batch 32,768",
        ["h200/learner.json"],
        lambda content: bold(millions(learner_of(content, 32768, "fused")["update_frame_hz"])),
        lambda content: learner_beside(content, 32768, "update_frame_hz", millions),
    ),
    Row(
        "from the command to the first update",
        [f"h200/throughput-{name}.json" for name in ("halfcheetah", "halfcheetah-b")],
        first_update,
    ),
    Row(
        "objective that a run adapts to within 45 s",
        ["h200/tune-halfcheetah.json"],
        lambda content: (
            f"**{content['share_of_best']:.1%}** of the best of {len(content['cells'])} measured settings"
        ),
        "[picture](docs/adaptation.md#measured)",
    ),
]
