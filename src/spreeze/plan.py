"""Turns a config with "auto" in it into one without, and keeps the reason for each choice."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata

from spreeze.adapt import defaults
from spreeze.adapt.defaults import Choice
from spreeze.adapt.hardware import Machine
from spreeze.channels.metrics import MAX_SAMPLERS
from spreeze.channels.transitions import RowLayout
from spreeze.config import Config
from spreeze.errors import ConfigError


@dataclass(frozen=True)
class Plan:
    """A config, and what was chosen in it."""

    config: Config
    choices: tuple[Choice, ...] = ()

    def take(self, choice: Choice) -> Plan:
        """Use a choice, unless the user has set that field."""
        if self.config.flat()[choice.setting] != "auto":
            return self
        return Plan(self.config.replace(**{choice.setting: choice.value}), (*self.choices, choice))


def plan_processes(config: Config, machine: Machine) -> Plan:
    """Choose device, processes, batch size and ratio."""
    usable_gpus = usable_gpu_count(machine)
    plan = Plan(config).take(defaults.choose_device(usable_gpus))
    device = plan.config.learning.device
    if device != "cpu" and int(device.partition(":")[2] or 0) >= usable_gpus:
        raise ConfigError(
            f"--device {device}: {usable_gpus} GPUs can be used here; use --device cpu, or see `spreeze doctor`"
        )
    engine = config.learning.update_engine
    if device == "cpu" and engine in ("graph", "fused"):
        raise ConfigError(f"--update-engine {engine} needs a GPU: leave it out, or use --update-engine eager")
    pinned = {
        name: value
        for name, value in config.flat().items()
        if name in ("samplers", "replay_rows", "max_updates_per_step") and value not in ("auto", None)
    }
    for choice in defaults.choose_parallelism(machine.cores, device, pinned):
        plan = plan.take(choice)
    if int(plan.config.sampling.samplers) > MAX_SAMPLERS:
        raise ConfigError(
            f"--samplers {plan.config.sampling.samplers} is more than there is room for: {MAX_SAMPLERS}"
        )
    return plan


def usable_gpu_count(machine: Machine) -> int:
    """Return the GPUs that torch can use; a CPU build of it, known by its version, can use none."""
    try:
        return 0 if "+cpu" in metadata.version("torch") else len(machine.gpus)
    except metadata.PackageNotFoundError:
        return 0  # `spreeze doctor` says how to install it


def plan_memory(plan: Plan, layout: RowLayout, machine: Machine) -> Plan:
    """Choose what depends on the size of a row, and refuse what does not fit: replay on its device, rings here."""
    plan = plan.take(defaults.ring_capacity_rows(layout.row_bytes))
    sampling, device = plan.config.sampling, plan.config.learning.device
    ring_bytes = int(sampling.samplers) * int(sampling.ring_rows) * layout.row_bytes
    free_bytes = machine.memory_bytes - ring_bytes
    if free_bytes <= 0:
        raise ConfigError(
            f"--ring-rows {sampling.ring_rows} for {sampling.samplers} samplers needs {ring_bytes / 2**30:.1f} GB "
            f"and {machine.memory_bytes / 2**30:.1f} GB are free: lower --ring-rows or --samplers"
        )
    if device != "cpu":
        free_bytes = machine.gpus[int(device.partition(":")[2] or 0)].memory_bytes
    plan = plan.take(defaults.replay_capacity_rows(layout.row_bytes, free_bytes, device))
    rows, fitting = int(plan.config.learning.replay_rows), free_bytes // layout.row_bytes
    if rows > fitting or fitting < int(plan.config.learning.batch_size):
        raise ConfigError(
            f"--replay-rows {rows} needs {rows * layout.row_bytes / 2**30:.1f} GB and {free_bytes / 2**30:.1f} GB "
            f"are free: use --replay-rows {int(fitting * defaults.REPLAY_MEMORY_SHARE)} or fewer"
        )
    return plan
