"""Chooses how a run is spread over the machine. Pure: what is known goes in, choices and their reasons come out."""

from __future__ import annotations

from dataclasses import dataclass

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


def choose_parallelism(cores: int, device: str, replay_rows: int | str = "auto") -> list[Choice]:
    """Choose processes, batch size, threads and ratio for a machine that was not measured yet."""
    on_gpu = device.startswith("cuda")
    samplers = min(MAX_CHOSEN_SAMPLERS, max(1, cores - 3 if on_gpu else cores // 2))
    threads = 1 if on_gpu else max(1, cores - samplers)
    learner = "the GPU" if on_gpu else "the CPU"
    batch = 8192 if on_gpu else 256
    return [
        Choice("samplers", samplers, f"{cores} cores, learner on {learner}"),
        Choice("envs_per_sampler", 16, "one pass through the policy serves them all"),
        Choice("learner_threads", threads, f"{cores} cores, {samplers} samplers"),
        Choice(
            "batch_size", batch if replay_rows == "auto" else min(batch, int(replay_rows)), f"learner on {learner}"
        ),
        Choice("min_updates_per_step", 0.0, "free-running"),
    ]


def ring_capacity_rows(row_bytes: int) -> Choice:
    """Choose how many rows fit between a sampler and the learner: about a second of experience, within 16 MB."""
    rows = max(1024, min(16384, 16 * 2**20 // row_bytes))
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
