"""Static choices, for a machine that was not measured yet. Pure: what is known goes in, choices come out."""

from __future__ import annotations

from collections.abc import Mapping

from spreeze.adapt.update_parts import UpdateParts
from spreeze.config.choice import Choice

# docs/defaults.md has the measurements behind these.
FREE_RUNNING_ENVS, CPU_ENVS = 32, 16
CPU_BATCH_SIZE, MIXED_BATCH_SIZE, GPU_BATCH_SIZE = 64, 512, 8192
CPU_LEARNING_RATE_BATCH, GPU_LEARNING_RATE_BATCH = 128, 8192  # smaller ones learn as well with the same rate
CPU_MIN_UPDATES_PER_STEP = 0.1
CPU_TAU, GPU_TAU = 0.02, 0.01
MAX_CHOSEN_SAMPLERS = 128  # more than one learner was ever fed by; --samplers takes more
# Batches that soft actor-critic is known to learn well with at our network sizes (docs/adaptation.md).
CPU_BATCH_SIZES, GPU_BATCH_SIZES = (64, 512), (256, 8192)
ENVS_PER_SAMPLER = (4, 64)
MIN_CORES_TO_SPLIT = 2  # more updates on two (docs/two-devices.md)
MIN_CORES_TO_PIN = 4  # with fewer, a core of its own is more than the learner needs


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
        samplers, batch, envs, ratio, tau = cores - 2, GPU_BATCH_SIZE, FREE_RUNNING_ENVS, 0.0, GPU_TAU
        why = f"{cores} cores: all but two, for learner and evaluator"
        why_ratio = "the GPU keeps up: nobody waits"
    else:
        samplers, batch, envs, ratio, tau = cores // 4, CPU_BATCH_SIZE, CPU_ENVS, CPU_MIN_UPDATES_PER_STEP, CPU_TAU
        why = f"{cores} cores, most of them for the learner"
        why_ratio = "the CPU learner is the slow part: samplers leave it the cores"
    rate_batch = CPU_LEARNING_RATE_BATCH if device == "cpu" else GPU_LEARNING_RATE_BATCH
    samplers = int(pinned.get("samplers", min(MAX_CHOSEN_SAMPLERS, max(1, samplers))))
    choices = [
        Choice("samplers", samplers, why),
        Choice("envs_per_sampler", envs, "one pass through the policy serves them all"),
        Choice("batch_size", int(min(batch, pinned.get("replay_rows", batch))), f"learner on {device}"),
        Choice(
            "learning_rate_batch", int(pinned.get("batch_size", rate_batch)), "what the learning rate was found with"
        ),
        Choice("min_updates_per_step", min(ratio, pinned.get("max_updates_per_step", ratio)), why_ratio),
        Choice("tau", tau, f"fastest to learn with updates as fast as on {device}"),
    ]
    if device.startswith("cuda"):  # a learner on a CPU finds both by trying
        how = "captured as CUDA graphs, with kernels of our own where Triton is there"
        choices += [Choice("learner_threads", 1, "the GPU computes"), Choice("update_engine", "fused", how)]
    return choices


def choose_split(cores: int, device: str, gpu_count: int, parts: UpdateParts | None) -> Choice:
    """Choose whether actor and critics learn in processes of their own.

    gpu_count: of those that a learner may use. parts: of an update, measured on them; None: they never were.
    """
    if device == "cpu":
        if cores >= MIN_CORES_TO_SPLIT:
            return Choice("split", "yes", f"{cores} cores: a core for the critics and one for the actor")
        return Choice("split", "no", "actor and critics would share a core")
    if gpu_count < 2:
        return Choice("split", "no", "actor and critics would share a GPU")
    if parts is None:
        return Choice(
            "split", "no", "whether two GPUs pay was not measured here: `spreeze bench split` does, for sac"
        )
    return Choice("split", "yes" if parts.pays else "no", f"measured: {parts}")


def choose_mixed_batch() -> list[Choice]:
    """Choose the batch where one side of the learner is on a GPU and the other on the CPU."""
    why = "one side on a GPU: small batches learn less there (docs/two-devices.md)"
    return [Choice("batch_size", MIXED_BATCH_SIZE, why), Choice("learning_rate_batch", MIXED_BATCH_SIZE, why)]


def choose_bounds(cores: int, device: str) -> list[Choice]:
    """Choose how far an adaptation may go."""
    _, largest = CPU_BATCH_SIZES if device == "cpu" else GPU_BATCH_SIZES
    return [
        Choice("max_samplers", min(MAX_CHOSEN_SAMPLERS, max(4, 2 * cores)), f"{cores} cores: twice as many"),
        Choice("max_batch_size", largest, f"what is known to learn well on {device}"),
    ]


def smallest_batch_size(device: str) -> int:
    """Return the smallest batch that an adaptation tries."""
    return (CPU_BATCH_SIZES if device == "cpu" else GPU_BATCH_SIZES)[0]


def ring_capacity_rows(row_bytes: int) -> Choice:
    """Choose how many rows fit between a sampler and the learner: about a second of experience, within 16 MB."""
    rows = max(64, min(16384, 16 * 2**20 // row_bytes))
    return Choice("ring_rows", rows, f"{rows * row_bytes / 2**20:.1f} MB a sampler, {row_bytes} bytes a row")


# All samplers together may take this share; one that needs less than the least is not worth watching.
SAMPLER_MEMORY_SHARE, LEAST_SAMPLER_MB = 0.5, 1024


def sampler_memory_mb(free_bytes: int, most_samplers: int) -> Choice:
    """Choose how much memory a sampler may take before it counts as leaking."""
    share = int(SAMPLER_MEMORY_SHARE * free_bytes) // most_samplers // 2**20
    free = f"{free_bytes / 2**30:.1f} GB are free for up to {most_samplers} samplers and all others"
    return Choice("max_sampler_mb", max(LEAST_SAMPLER_MB, share), free)


# On a GPU samplers fill a million rows in four seconds.
CPU_REPLAY_ROWS, GPU_REPLAY_ROWS = 1_000_000, 10_000_000
# The replay may take this share of the memory that is free; the rest is for processes, page cache and the user.
REPLAY_MEMORY_SHARE = 0.6


def replay_capacity_rows(row_bytes: int, free_bytes: int, device: str) -> Choice:
    """Choose how many rows the replay holds: as many as pay, or as fit."""
    wanted = CPU_REPLAY_ROWS if device == "cpu" else GPU_REPLAY_ROWS
    rows = max(1, min(wanted, int(REPLAY_MEMORY_SHARE * free_bytes) // row_bytes))
    size = f"{rows * row_bytes / 2**30:.2f} GB of {free_bytes / 2**30:.1f} GB free on {device}"
    return Choice("replay_rows", rows, size if rows == wanted else f"as many as fit: {size}")
