"""Choices for a machine on which nothing has been measured yet. Pure functions: facts go in, choices come out."""

from __future__ import annotations

from collections.abc import Mapping

from spreeze.adapt.update_times import UpdateTimes
from spreeze.config.choice import Choice

# docs/defaults.md has the measurements behind these.
FREE_RUNNING_ENVS, CPU_ENVS = 32, 16
CPU_BATCH_SIZE, MIXED_BATCH_SIZE, GPU_BATCH_SIZE = 64, 512, 8192
CPU_LEARNING_RATE_BATCH, GPU_LEARNING_RATE_BATCH = 128, 8192  # smaller batches learn as well with the same rate
CPU_MIN_UPDATES_PER_STEP = 0.1
MAX_UPDATES_PER_STEP = 8.0  # the highest with which no value ran away
SERIAL_UPDATES_PER_STEP = 1.0  # what papers use; a run that waits for each update anyway gains nothing by fewer
CPU_TAU, GPU_TAU = 0.02, 0.01
REALTIME_EVAL_EPISODES = 5  # of the training: with more, the mean is too far behind the policy
MAX_CHOSEN_SAMPLERS = 128  # more than any measured learner could use; --samplers accepts more
# Batch sizes at which soft actor-critic is known to learn well with our network sizes (docs/adaptation.md).
CPU_BATCH_SIZES, GPU_BATCH_SIZES = (64, 512), (256, 8192)
ENVS_PER_SAMPLER = (4, 64)
MIN_CORES_TO_SPLIT = 2  # two processes make more updates on two cores (docs/two-devices.md)
MIN_CORES_TO_PIN = 4  # with fewer, a core of its own is more than the learner needs
# All samplers together may take this share of the memory; below the minimum, a limit for each is not worth enforcing.
SAMPLER_MEMORY_SHARE, MIN_SAMPLER_MB = 0.5, 1024
# On a GPU samplers fill a million rows in four seconds.
CPU_REPLAY_ROWS, GPU_REPLAY_ROWS = 1_000_000, 10_000_000
# The replay may take this share of the memory that is free; the rest is for processes, page cache and the user.
REPLAY_MEMORY_SHARE = 0.6


def choose_for_serial(updates_per_step: float) -> list[Choice]:
    """Choose what makes a run in one process repeat itself.

    updates_per_step: its upper bound, which such a run reaches after every step.
    """
    return [
        Choice("samplers", 1, "serial: all environments are in this process"),
        Choice("split", "no", "serial: two sides would take turns"),
        Choice("learner_threads", 1, "serial: sums are taken in one order"),
        Choice("update_engine", "eager", "serial: a debugger stops in a loss, and nothing is chosen by its speed"),
        Choice("min_updates_per_step", updates_per_step, "serial: all updates follow the step that allows them"),
    ]


def choose_for_realtime() -> list[Choice]:
    """Choose what keeps the steps of one real robot at their deadlines."""
    return [
        Choice("samplers", 1, "--realtime: one environment, in one sampler"),
        Choice("envs_per_sampler", 1, "--realtime: one environment, in one sampler"),
        Choice("max_samplers", 1, "--realtime: one environment, in one sampler"),
        Choice("env_threads", "no", "--realtime: the sampler steps its one environment itself"),
        Choice("stagger_episodes", "no", "--realtime: one environment"),
        Choice("min_updates_per_step", 0.0, "--realtime: a step does not wait for the learner"),
    ]


def choose_realtime_episodes(eval_episodes: int, usual_eval_episodes: int) -> Choice:
    """Choose how many episodes an evaluation of one real robot has, unless the user has set it."""
    episodes = REALTIME_EVAL_EPISODES if eval_episodes == usual_eval_episodes else eval_episodes
    no_other = "--realtime: no other environment is made, for evaluations, the view or videos"
    reason = f"{no_other}; an evaluation is the last {episodes} training episodes"
    return Choice("eval_episodes", episodes, reason)


def choose_device(gpu_count: int) -> Choice:
    """Choose where the learner runs."""
    if gpu_count:
        return Choice("device", "cuda", "this machine has a GPU")
    return Choice("device", "cpu", "this machine has no GPU")


def choose_parallelism(cores: int, device: str, set_by_user: Mapping[str, int | float] | None = None) -> list[Choice]:
    """Choose processes, batch size, threads and ratio for a machine on which nothing has been measured yet.

    set_by_user: settings by name; the other choices fit them.
    """
    set_by_user = set_by_user or {}
    if device.startswith("cuda"):
        samplers, batch, envs, ratio, tau = cores - 2, GPU_BATCH_SIZE, FREE_RUNNING_ENVS, 0.0, GPU_TAU
        reason = f"{cores} cores: all but two, for learner and evaluator"
        ratio_reason = "the GPU keeps up: samplers never wait for it"
    else:
        samplers, batch, envs, ratio, tau = cores // 4, CPU_BATCH_SIZE, CPU_ENVS, CPU_MIN_UPDATES_PER_STEP, CPU_TAU
        reason = f"{cores} cores, most of them for the learner"
        ratio_reason = "a learner on the CPU is slower than the samplers: they leave it the cores"
    rate_batch = CPU_LEARNING_RATE_BATCH if device == "cpu" else GPU_LEARNING_RATE_BATCH
    samplers = int(set_by_user.get("samplers", min(MAX_CHOSEN_SAMPLERS, max(1, samplers))))
    choices = [
        Choice("samplers", samplers, reason),
        Choice("envs_per_sampler", envs, "one pass through the policy is enough for all of them"),
        Choice("batch_size", int(min(batch, set_by_user.get("replay_rows", batch))), f"learner on {device}"),
        Choice(
            "learning_rate_batch",
            int(set_by_user.get("batch_size", rate_batch)),
            "the batch size that the learning rate was tuned with",
        ),
        Choice("min_updates_per_step", min(ratio, set_by_user.get("max_updates_per_step", ratio)), ratio_reason),
        _choose_upper_ratio(set_by_user.get("min_updates_per_step", 0.0)),
        Choice("tau", tau, f"learns fastest at the update rate of {device}"),
    ]
    if device.startswith("cuda"):  # a learner on a CPU measures both at its start
        reason = "captured as CUDA graphs, with kernels of our own if Triton is installed"
        choices += [Choice("learner_threads", 1, "the GPU computes"), Choice("update_engine", "fused", reason)]
    return choices


def _choose_upper_ratio(lower: float) -> Choice:
    """Choose the upper bound of the ratio, which only a learner with slow environments reaches."""
    if lower > MAX_UPDATES_PER_STEP:
        return Choice("max_updates_per_step", lower, "as --min-updates-per-step: the ratio is exact")
    reason = "with more, values run away where steps are scarce: the learner waits for the next one"
    return Choice("max_updates_per_step", MAX_UPDATES_PER_STEP, reason)


def choose_split(cores: int, device: str, gpu_count: int, update_times: UpdateTimes | None) -> Choice:
    """Choose whether actor and critics learn in processes of their own.

    gpu_count: GPUs that a learner may use. update_times: measured on them; None if they never were.
    """
    if device == "cpu":
        if cores >= MIN_CORES_TO_SPLIT:
            return Choice("split", "yes", f"{cores} cores: a core for the critics and one for the actor")
        return Choice("split", "no", "actor and critics would share a core")
    if gpu_count < 2:
        return Choice("split", "no", "actor and critics would share a GPU")
    if update_times is None:
        return Choice("split", "no", "whether two GPUs pay was not measured here: `spreeze bench split` does")
    return Choice("split", "yes" if update_times.pays else "no", f"measured: {update_times}")


def choose_mixed_batch() -> list[Choice]:
    """Choose the batch size if one learner role is on a GPU and the other on the CPU."""
    reason = "one learner role on a GPU: small batches learn less there (docs/two-devices.md)"
    return [Choice("batch_size", MIXED_BATCH_SIZE, reason), Choice("learning_rate_batch", MIXED_BATCH_SIZE, reason)]


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
    return Choice("ring_rows", rows, f"{rows * row_bytes / 2**20:.1f} MB per sampler, {row_bytes} bytes per row")


def sampler_memory_mb(free_bytes: int, most_samplers: int) -> Choice:
    """Choose how much memory one sampler may take before it counts as leaking."""
    share = int(SAMPLER_MEMORY_SHARE * free_bytes) // most_samplers // 2**20
    free = f"{free_bytes / 2**30:.1f} GB are free for up to {most_samplers} samplers and all others"
    return Choice("max_sampler_mb", max(MIN_SAMPLER_MB, share), free)


def replay_capacity_rows(row_bytes: int, free_bytes: int, device: str) -> Choice:
    """Choose how many rows the replay holds: as many as are useful, or as fit."""
    wanted = CPU_REPLAY_ROWS if device == "cpu" else GPU_REPLAY_ROWS
    rows = max(1, min(wanted, int(REPLAY_MEMORY_SHARE * free_bytes) // row_bytes))
    size = f"{rows * row_bytes / 2**30:.2f} GB of {free_bytes / 2**30:.1f} GB free on {device}"
    return Choice("replay_rows", rows, size if rows == wanted else f"as many as fit: {size}")
