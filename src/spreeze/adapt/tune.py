"""Chooses how a run is spread over the machine. Pure: what is known goes in, choices and their reasons come out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# docs/defaults.md has the measurements behind these.
FREE_RUNNING_ENVS, CPU_ENVS = 32, 16
CPU_BATCH_SIZE, GPU_BATCH_SIZE = 128, 8192
CPU_MIN_UPDATES_PER_STEP = 0.1
MAX_LEARNER_THREADS = 4  # products of 128 x 256 x 256 do not gain from more
MAX_CHOSEN_SAMPLERS = 128  # more than one learner was ever fed by; --samplers takes more


@dataclass(frozen=True)
class Choice:
    """One setting, what was chosen for it, and why."""

    setting: str
    value: int | float | str
    reason: str


def choose_device(gpu_count: int) -> Choice:
    """Choose where the learner runs."""
    if gpu_count:
        return Choice("device", "cuda", "a GPU is here")
    return Choice("device", "cpu", "no GPU is here")


def choose_parallelism(cores: int, device: str, pinned: Mapping[str, int | float] | None = None) -> list[Choice]:
    """Choose processes, batch size, threads and ratio for a machine that was not measured yet.

    pinned: what the user has set, by name; the other choices fit it.
    """
    pinned = pinned or {}
    if device.startswith("cuda"):
        samplers, batch, envs, ratio = cores - 3, GPU_BATCH_SIZE, FREE_RUNNING_ENVS, 0.0
        why = f"{cores} cores: all but three, for learner, evaluator and the system"
        why_ratio = "the GPU keeps up: nobody waits"
    else:
        samplers, batch, envs, ratio = cores // 4, CPU_BATCH_SIZE, CPU_ENVS, CPU_MIN_UPDATES_PER_STEP
        why = f"{cores} cores, most of them for the learner"
        why_ratio = "the CPU learner is the slow part: samplers leave it the cores"
    samplers = int(pinned.get("samplers", min(MAX_CHOSEN_SAMPLERS, max(1, samplers))))
    threads = 1 if device.startswith("cuda") else min(MAX_LEARNER_THREADS, cores - samplers - 1)
    return [
        Choice("samplers", samplers, why),
        Choice("envs_per_sampler", envs, "one pass through the policy serves them all"),
        Choice("learner_threads", max(1, threads), f"{cores} cores, {samplers} for samplers, learner on {device}"),
        Choice("batch_size", int(min(batch, pinned.get("replay_rows", batch))), f"learner on {device}"),
        Choice("min_updates_per_step", min(ratio, pinned.get("max_updates_per_step", ratio)), why_ratio),
    ]


def ring_capacity_rows(row_bytes: int) -> Choice:
    """Choose how many rows fit between a sampler and the learner: about a second of experience, within 16 MB."""
    rows = max(64, min(16384, 16 * 2**20 // row_bytes))
    return Choice("ring_rows", rows, f"{rows * row_bytes / 2**20:.1f} MB a sampler, {row_bytes} bytes a row")


DEFAULT_REPLAY_ROWS = 1_000_000
# The replay may take this share of the memory that is free; the rest is for processes, page cache and the user.
REPLAY_MEMORY_SHARE = 0.6


def replay_capacity_rows(row_bytes: int, free_bytes: int) -> Choice:
    """Choose how many rows the replay holds: a million, or as many as fit."""
    fitting = int(REPLAY_MEMORY_SHARE * free_bytes) // row_bytes
    rows = max(1, min(DEFAULT_REPLAY_ROWS, fitting))
    size = f"{rows * row_bytes / 2**30:.2f} GB of {free_bytes / 2**30:.1f} GB free"
    return Choice("replay_rows", rows, size if rows == DEFAULT_REPLAY_ROWS else f"as many as fit: {size}")
