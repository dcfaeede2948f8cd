"""Turns a config with "auto" in it into one without, and keeps the reason for each choice."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, replace
from importlib import metadata

from spreeze.adapt import defaults
from spreeze.adapt.recipes import choose_recipe
from spreeze.adapt.tune import Bounds
from spreeze.adapt.update_parts import UpdateParts
from spreeze.channels.metrics import MAX_SAMPLERS
from spreeze.channels.transitions import RowLayout
from spreeze.config import Auto, Config
from spreeze.config.choice import Choice
from spreeze.config.run_settings import RunSettings
from spreeze.errors import ConfigError
from spreeze.host.hardware import Machine
from spreeze.host.threads import learner_thread_candidates


@dataclass(frozen=True)
class Plan:
    """A config, and what was chosen in it."""

    config: Config
    choices: tuple[Choice, ...] = ()
    recalled: RunSettings | None = None
    """What an earlier run has found, where it is used."""
    warnings: tuple[str, ...] = ()
    """What to tell the user once there is a run folder to record it in."""

    def warn(self, warning: str | None) -> Plan:
        """Return the plan with a warning more, if there is one."""
        return self if warning is None else replace(self, warnings=(*self.warnings, warning))

    def take(self, choice: Choice) -> Plan:
        """Use a choice, unless the user has set that field."""
        if self.config.flat()[choice.setting] != "auto":
            return self
        config = self.config.replace(**{choice.setting: choice.value})
        return replace(self, config=config, choices=(*self.choices, choice))

    @property
    def settings(self) -> RunSettings:
        """What a run starts with; a learner that is to find its threads by trying has 0."""
        sampling, learning = self.config.sampling, self.config.learning
        return RunSettings(
            samplers=int(sampling.samplers),
            envs_per_sampler=int(sampling.envs_per_sampler),
            batch_size=int(learning.batch_size),
            learner_threads=0 if learning.learner_threads == "auto" else learning.learner_threads,
            pinned=self.config.adaptation.pin_cores == "yes" or (self.recalled is not None and self.recalled.pinned),
        )

    @property
    def most_samplers(self) -> int:
        """How many there may ever be at once."""
        samplers, adaptation = int(self.config.sampling.samplers), self.config.adaptation
        return max(samplers, int(adaptation.max_samplers)) if adaptation.adapt else samplers


def plan_processes(
    config: Config, machine: Machine, recalled: RunSettings | None = None, parts: UpdateParts | None = None
) -> Plan:
    """Choose device, processes, batch size and ratio.

    recalled: what an earlier run has found. parts: those of an update, measured on this machine's GPUs.
    """
    usable_gpus = usable_gpu_count(machine)
    plan = Plan(config)
    if config.learning.is_split:
        if config.learning.device not in ("auto", config.learning.critic_device):
            raise ConfigError(
                f"--device {config.learning.device} contradicts --critic-device and --actor-device: leave it out"
            )
        plan = plan.take(
            Choice("device", config.learning.device_of("critic"), "what is not split follows the critics")
        )
    plan = plan.take(defaults.choose_device(usable_gpus))
    device = plan.config.learning.device
    gpus = ["cuda:0", "cuda:1"] if config.learning.device == "auto" and usable_gpus > 1 else [device]
    if not config.learning.is_split:
        measured = parts if _is_as_measured(config) else None
        plan = plan.take(defaults.choose_split(machine.cores, device, len(gpus), measured))
        plan = _with_sides(plan, gpus)
    for name in ("actor_device", "critic_device", "device"):
        where = getattr(plan.config.learning, name)
        if where not in ("cpu", None) and int(where.partition(":")[2] or 0) >= usable_gpus:
            flag = "--" + name.replace("_", "-")
            raise ConfigError(
                f"{flag} {where}: {usable_gpus} GPUs can be used here; use {flag} cpu, or see `spreeze doctor`"
            )
    engine = config.learning.update_engine
    kinds = {plan.config.learning.device_of(role).partition(":")[0] for role in plan.config.learning.learner_roles}
    if kinds == {"cpu"} and engine in ("graph", "fused"):
        raise ConfigError(f"--update-engine {engine} needs a GPU: leave it out, or use --update-engine eager")
    pinned = {
        name: value
        for name, value in config.flat().items()
        if name in ("samplers", "batch_size", "replay_rows", "max_updates_per_step") and value not in ("auto", None)
    }
    slowest, is_mixed = _slowest_device(plan.config), len(kinds) > 1
    for choice in defaults.choose_bounds(machine.cores, slowest):
        plan = plan.take(_beside_what_is_set(choice, config))
    if recalled is not None and _is_within(
        recalled, plan_bounds(plan, config, machine), config.adaptation.pin_cores == "yes"
    ):
        plan = replace(plan, recalled=recalled)
        for setting in ("samplers", "envs_per_sampler", "batch_size", "learner_threads"):
            why = "found by an earlier run; --fresh ignores it"
            plan = plan.take(Choice(setting, getattr(recalled, setting), why))
    for choice in choose_recipe(config.algo, config.env, slowest):
        plan = plan.take(_beside_exploration(choice, config))
    if is_mixed and "batch_size" not in pinned:
        for choice in defaults.choose_mixed_batch():
            plan = plan.take(_within_bounds(choice, plan.config))
    for choice in defaults.choose_parallelism(machine.cores, slowest, pinned):
        plan = plan.take(_within_bounds(choice, plan.config))
    for flag, number in (
        ("--samplers", int(plan.config.sampling.samplers)),
        ("--max-samplers", int(plan.config.adaptation.max_samplers)),
    ):
        if number > MAX_SAMPLERS:
            raise ConfigError(f"{flag} {number} is more than there is room for: {MAX_SAMPLERS}")
    return plan


def _beside_exploration(choice: Choice, asked: Config) -> Choice:
    """Let an end of the range give way to the one that the user has set: the noise, or the most of it."""
    noise, most = asked.sampling.exploration, asked.sampling.exploration_high
    if choice.setting == "exploration_high" and noise != "auto":
        return replace(choice, value=noise, reason="as --exploration: all environments alike")
    if choice.setting == "exploration" and most != "auto":
        return replace(choice, value=min(most, choice.value))
    return choice


def _with_sides(plan: Plan, devices: list[str]) -> Plan:
    """Give both sides of a learner that is to be split a device: the first of these to the critics."""
    if plan.config.learning.split != "yes":
        return plan
    why = "a GPU each" if len(devices) > 1 else "as --device"
    where = (Choice("critic_device", devices[0], why), Choice("actor_device", devices[-1], why))
    config = plan.config.replace(**{choice.setting: choice.value for choice in where})
    return replace(plan, config=config, choices=(*plan.choices, *where))


def _is_as_measured(config: Config) -> bool:
    """Say whether an update of this config is one that `spreeze bench split` measures."""
    learning = config.learning
    return (
        config.algo == "sac"
        and learning.actor_delay in ("auto", 1)
        and learning.atoms == 1
        and not learning.layer_norm
    )


def _slowest_device(config: Config) -> str:
    """Return where the slower side of the learner is: what is chosen has to suit it."""
    learning = config.learning
    return "cpu" if "cpu" in map(learning.device_of, learning.learner_roles) else learning.device


def plan_bounds(plan: Plan, asked: Config, machine: Machine) -> Bounds:
    """Say how far an adaptation may go; asked: the config in which what the user has not set is still "auto"."""
    adaptation, learning = plan.config.adaptation, plan.config.learning
    samplers, envs = asked.sampling.samplers, asked.sampling.envs_per_sampler
    batch_size, threads = asked.learning.batch_size, asked.learning.learner_threads
    replay_rows = asked.learning.replay_rows
    smallest, largest = batch_size_bounds(plan.config, replay_rows)
    cores_a_side = max(1, machine.cores // (2 if learning.is_split else 1))
    is_on_cpu = _slowest_device(plan.config) == "cpu"
    candidates = tuple(learner_thread_candidates(cores_a_side)) if is_on_cpu else (1,)
    may_pin = sys.platform == "linux" and machine.cores >= defaults.MIN_CORES_TO_PIN
    return Bounds(
        samplers=(1, int(adaptation.max_samplers)) if samplers == "auto" else (samplers,) * 2,
        envs_per_sampler=defaults.ENVS_PER_SAMPLER if envs == "auto" else (envs,) * 2,
        batch_size=(smallest, largest) if batch_size == "auto" else (batch_size,) * 2,
        learner_threads=candidates if threads == "auto" else (threads,),
        cores=machine.cores,
        may_pin=may_pin and adaptation.pin_cores == "auto",
    )


def batch_size_bounds(config: Config, replay_rows: int | Auto) -> tuple[int, int]:
    """Return the smallest and the largest batch that an adaptation tries, where the maximum is chosen."""
    largest = int(config.adaptation.max_batch_size)
    if replay_rows != "auto":
        largest = min(largest, replay_rows)
    return min(defaults.smallest_batch_size(_slowest_device(config)), largest), largest


def _is_within(settings: RunSettings, allowed: Bounds, is_pinned: bool) -> bool:
    """Say whether remembered settings may be used as a whole: they were measured together."""
    return (
        allowed.samplers[0] <= settings.samplers <= allowed.samplers[1]
        and allowed.envs_per_sampler[0] <= settings.envs_per_sampler <= allowed.envs_per_sampler[1]
        and allowed.batch_size[0] <= settings.batch_size <= allowed.batch_size[1]
        and settings.learner_threads in allowed.learner_threads
        and (allowed.may_pin or settings.pinned == is_pinned)
    )


def _beside_what_is_set(choice: Choice, asked: Config) -> Choice:
    """Let a maximum that is chosen give way to what the user has set."""
    value, samplers, batch_size = int(choice.value), asked.sampling.samplers, asked.learning.batch_size
    if choice.setting == "max_samplers":
        value = max(value, 0 if samplers == "auto" else samplers)
    elif choice.setting == "max_batch_size":
        value = max(value, 0 if batch_size == "auto" else batch_size)
    return replace(choice, value=value)


def _within_bounds(choice: Choice, config: Config) -> Choice:
    if choice.setting == "samplers":
        low, high = 1, int(config.adaptation.max_samplers)
    elif choice.setting == "batch_size":
        low, high = batch_size_bounds(config, config.learning.replay_rows)
    else:
        return choice
    value = min(high, max(low, int(choice.value)))
    return choice if value == choice.value else Choice(choice.setting, value, f"{choice.reason}; within its bounds")


def _replays(config: Config) -> dict[str, int]:
    """Return how many replays each device holds: two sides of a learner have one each."""
    return Counter(config.learning.device_of(role) for role in config.learning.learner_roles)


def _free_bytes(device: str, replays: int, free_here: int, machine: Machine) -> int:
    gpu = int(device.partition(":")[2] or 0)
    return (free_here if device == "cpu" else machine.gpus[gpu].memory_bytes) // replays


def plan_checkpoints(plan: Plan, layout: RowLayout, free_bytes: int) -> Plan:
    """Save no replay where the disk has no room for it, and warn about it."""
    wanted = plan.config.checkpoints
    if not wanted.checkpoint_interval_s or not wanted.checkpoint_replay:
        return plan
    # Two checkpoints are kept while the next is written: at most, none of them has a row of another.
    needed = 3 * int(plan.config.learning.replay_rows) * layout.row_bytes
    if needed <= free_bytes:
        return plan
    return replace(plan, config=plan.config.replace(checkpoint_replay=False)).warn(
        f"checkpoints leave the replay out: it may take {needed / 1e9:.1f} GB on this disk and "
        f"{free_bytes / 1e9:.1f} GB are free; make room, or lower --replay-rows"
    )


def usable_gpu_count(machine: Machine) -> int:
    """Return the GPUs that torch can use; a CPU build of it, known by its version, can use none."""
    try:
        return 0 if "+cpu" in metadata.version("torch") else len(machine.gpus)
    except metadata.PackageNotFoundError:
        return 0  # `spreeze doctor` says how to install it


def plan_memory(plan: Plan, layout: RowLayout, machine: Machine) -> Plan:
    """Choose what depends on the size of a row, and refuse what does not fit: replay on its device, rings here."""
    plan = plan.take(defaults.ring_capacity_rows(layout.row_bytes))
    plan = plan.take(defaults.sampler_memory_mb(machine.memory_bytes, plan.most_samplers))
    sampling, device = plan.config.sampling, plan.config.learning.device
    ring_bytes = int(sampling.samplers) * int(sampling.ring_rows) * layout.row_bytes
    free_bytes = machine.memory_bytes - ring_bytes
    if free_bytes <= 0:
        raise ConfigError(
            f"--ring-rows {sampling.ring_rows} for {sampling.samplers} samplers needs {ring_bytes / 2**30:.1f} GB "
            f"and {machine.memory_bytes / 2**30:.1f} GB are free: lower --ring-rows or --samplers"
        )
    free_bytes = min(_free_bytes(where, sides, free_bytes, machine) for where, sides in _replays(plan.config).items())
    plan = plan.take(defaults.replay_capacity_rows(layout.row_bytes, free_bytes, device))
    rows, fitting = int(plan.config.learning.replay_rows), free_bytes // layout.row_bytes
    if rows > fitting or fitting < int(plan.config.learning.batch_size):
        raise ConfigError(
            f"--replay-rows {rows} needs {rows * layout.row_bytes / 2**30:.1f} GB and {free_bytes / 2**30:.1f} GB "
            f"are free: use --replay-rows {int(fitting * defaults.REPLAY_MEMORY_SHARE)} or fewer"
        )
    return plan
