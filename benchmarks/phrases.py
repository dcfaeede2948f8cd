"""Figures in the sentences of the pages: which sentence, and what the results say belongs there.

A phrase is the sentence with {} for each figure; line breaks and spaces count as the same. The page itself bears no
mark. `tables.py check` holds both together, `tables.py write` puts the figures right.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sources import read

RESULTS = "benchmarks/results"
H200 = f"{RESULTS}/h200"
UPRIGHT = 880


@dataclass(frozen=True)
class Phrase:
    """One sentence, or a part of it that is found once on its page."""

    page: str
    text: str
    figures: Callable[[], list[str]]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Finds it on the page, a group for each figure."""
        said = r"([-\d][\d.,]*[kM%]?)".join(
            r"\s+".join(map(re.escape, re.split(r"\s+", piece))) for piece in self.text.split("{}")
        )
        return re.compile(said)

    @property
    def short(self) -> str:
        """Its first words, to name it by."""
        return self.text if len(self.text) <= 60 else self.text[:57] + "..."


def throughput(name: str) -> dict[str, Any]:
    content: dict[str, Any] = read(f"{H200}/throughput-{name}.json")
    return content


def best_return(file: str) -> float:
    return max(float(line["mean_return"]) for line in read(file))


def reached_s(file: str, target: float) -> str:
    return f"{next(line['wall_s'] for line in read(file) if line['mean_return'] >= target):.1f}"


def learner(way: str) -> dict[str, Any]:
    figures = read(f"{H200}/learner.json")["figures"]
    return next(figure for figure in figures if (figure["batch_size"], figure["way"]) == (8192, way))


def eager_update() -> list[str]:
    """The floor of an update, its time by the clock, its kernels and their time, at batch 8192."""
    eager = learner("eager")
    floor_us, clock_us = 1e6 * eager["floor_share"] / eager["update_hz"], 1e6 / eager["update_hz"]
    return [f"{floor_us:.0f}", f"{clock_us:,.0f}", f"{eager['kernels']:.0f}", f"{eager['gpu_us']:,.0f}"]


def layer_norm() -> list[str]:
    evaluations = read(f"{H200}/halfcheetah-layer-norm-evaluations.jsonl")
    first, last = evaluations[0], evaluations[-1]
    rate = (last["updates"] - first["updates"]) / (last["wall_s"] - first["wall_s"])
    defaults = [read(f"{H200}/halfcheetah-static-{seed}-summary.json")["time_to_target_s"] for seed in (0, 1, 2)]
    fused = throughput("halfcheetah")["training"]["update_hz"]
    reached = [f"{min(defaults):.1f}", f"{max(defaults):.1f}"]
    return [f"{last['mean_return']:,.0f}", f"{last['wall_s']:.0f}", *reached, f"{rate:.0f}", f"{fused:,.0f}"]


def swing_up() -> list[str]:
    """When it first stood nearly as long as an episode lasts, with which return, and when the run ended."""
    evaluations = read(f"{RESULTS}/swingup-bullet-2-cores-evaluations.jsonl")
    upright = next(line for line in evaluations if line["mean_return"] >= UPRIGHT)
    return [f"{upright['mean_return']:.0f}", f"{upright['wall_s']:.0f}", f"{evaluations[-1]['wall_s']:.0f}"]


def humanoid() -> list[str]:
    content = throughput("humanoid")
    training = content["training"]
    ratios = [f"{content[f'ratio_to_used_cores{kind}']:.3f}" for kind in ("", "_with_policy")]
    return [f"{training['sampling_hz']:,.0f}", f"{training['update_frame_hz'] / 1e6:.1f}M", *ratios]


def tuned_shares() -> list[str]:
    files = (f"{H200}/tune-halfcheetah.json", f"{RESULTS}/tune-halfcheetah-2-cores.json")
    return [f"{read(file)['share_of_best']:.1%}" for file in files]


def split_with_a_cpu() -> list[str]:
    fresh, again = (read(f"{H200}/split-cuda-cpu-{way}-summary.json") for way in ("fresh", "remembered"))
    return [f"{fresh['best_return']:,.0f}", f"{again['time_to_target_s']:.1f}"]


def descriptors() -> list[str]:
    counts = read(f"{RESULTS}/soak-2-cores.json")["descriptors"]
    return [str(counts["first third"]), str(counts["last third"])]


def small_sampler() -> list[str]:
    samplers = read(f"{RESULTS}/sampling-halfcheetah-4-envs.json")["samplers"]
    first_step_s = statistics.median(sampler["first_step_s"] for sampler in samplers)
    return [f"{max(sampler['resident_mb'] for sampler in samplers):.0f}", f"{first_step_s:.2f}"]


def slow_cores() -> list[str]:
    adapted = read(f"{H200}/tune-halfcheetah.json")["adapted"]["sampling_hz"]
    return [f"{round(rate, -3):,.0f}" for rate in (adapted, throughput("halfcheetah")["training"]["sampling_hz"])]


PHRASES = [
    Phrase(
        "docs/performance.md",
        "at batch 8192, {} microseconds at the rate of one large product. Written in plain PyTorch the update takes "
        "{} microseconds, because the host launches {} small kernels one by one, and {} even if the host",
        eager_update,
    ),
    Phrase(
        "docs/performance.md",
        "{} kernels an update instead of {}.",
        lambda: [f"{learner(way)['kernels']:.0f}" for way in ("fused", "graph")],
    ),
    Phrase(
        "docs/adaptation.md",
        "one sampler with batches of 256 makes {} updates a second there",
        lambda: [f"{read(f'{H200}/halfcheetah-1-sampler-batch-256-summary.json')['update_frame_hz'] / 256:,.0f}"],
    ),
    Phrase("docs/architecture.md", "showed {} MB and a first step {} s after its start.", small_sampler),
    Phrase(
        "docs/defaults.md",
        "gave {} of the bare loops",
        lambda: [f"{throughput('halfcheetah')['ratio_to_used_cores']:.2f}"],
    ),
    Phrase(
        "docs/two-devices.md",
        "HalfCheetah's sizes an exchange is {} bytes",
        lambda: [f"{read(f'{H200}/split-parts.json')['figures'][0]['exchange_bytes']:,}"],
    ),
    Phrase(
        "docs/performance.md",
        "The learner's host spends {} of its time on ingestion",
        lambda: [f"{throughput('halfcheetah')['training']['ingest_share']:.0%}"],
    ),
    Phrase(
        "docs/performance.md",
        "With 14 samplers, Humanoid-v5 makes {} env steps/s and {} update frames/s. That is {} of what bare loops "
        "with random actions make of as many cores, but {} of what bare loops make",
        humanoid,
    ),
    Phrase(
        "docs/performance.md",
        "bare loops that play the policy make {} of what those with random actions do",
        lambda: [f"{throughput('humanoid')['raw_policy_hz'] / throughput('humanoid')['raw_hz']:.3f}"],
    ),
    Phrase(
        "docs/adaptation.md",
        "the run had come to {} of the best objective in the grid, on 2 cores without a GPU to {}:",
        tuned_shares,
    ),
    Phrase("docs/adaptation.md", "{} env steps/s, where another machine made {} in", slow_cores),
    Phrase(
        "docs/recipes.md",
        "with `--layer-norm` HalfCheetah-v5 was at {} after {} s, where the defaults had reached 10,000 after {} to "
        "{} s: the normalised layers have no fused kernel yet, and make {} updates a second instead of {}.",
        layer_norm,
    ),
    Phrase(
        "docs/recipes.md",
        "Humanoid-v5 at 5,000 after {} s with `--n-step 3`, where the defaults came to {} in 70 s; Ant-v5 at 4,500 "
        "after {} s with it.",
        lambda: [
            reached_s(f"{H200}/humanoid-n-step-3-evaluations.jsonl", 5000),
            f"{best_return(f'{H200}/humanoid-evaluations.jsonl'):,.0f}",
            reached_s(f"{H200}/ant-n-step-3-evaluations.jsonl", 4500),
        ],
    ),
    Phrase(
        "docs/recipes.md",
        "came to {} over 10 episodes in ten minutes",
        lambda: [f"{best_return(f'{RESULTS}/hopper-bullet-2-cores-evaluations.jsonl'):,.0f}"],
    ),
    Phrase(
        "docs/recipes.md",
        "stood upright ({} of at most some 890) after {} s, and was stopped after {} s",
        swing_up,
    ),
    Phrase(
        "docs/two-devices.md",
        "came to {} at best in 240 s, and, once more from the settings that the run before had found, to 10,000 "
        "after {} s:",
        split_with_a_cpu,
    ),
    Phrase(
        "docs/reliability.md",
        "the supervisor had {} descriptors at the beginning and {} at the end.",
        descriptors,
    ),
]
