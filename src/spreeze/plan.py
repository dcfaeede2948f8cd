"""Turns a config with "auto" in it into one without, and keeps the reason for each choice."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata

from spreeze.adapt import tune
from spreeze.adapt.hardware import Machine
from spreeze.adapt.tune import Choice
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
    plan = Plan(config).take(tune.choose_device(usable_gpus))
    device = plan.config.learning.device
    if device != "cpu" and int(device.partition(":")[2] or 0) >= usable_gpus:
        raise ConfigError(
            f"--device {device}: {usable_gpus} GPUs can be used here; use --device cpu, or see `spreeze doctor`"
        )
    for choice in tune.choose_parallelism(machine.cores, device, config.learning.replay_rows):
        plan = plan.take(choice)
    if int(plan.config.sampling.samplers) > MAX_SAMPLERS:
        raise ConfigError(
            f"--samplers {plan.config.sampling.samplers} is more than there is room for: {MAX_SAMPLERS}"
        )
    return plan


def usable_gpu_count(machine: Machine) -> int:
    """Return the GPUs that torch can use; a CPU build of it, known by its version, can use none."""
    return 0 if "+cpu" in metadata.version("torch") else len(machine.gpus)


def plan_memory(plan: Plan, layout: RowLayout, free_bytes: int) -> Plan:
    """Choose what depends on the size of a row, and refuse what does not fit."""
    plan = plan.take(tune.ring_capacity_rows(layout.row_bytes))
    plan = plan.take(tune.replay_capacity_rows(layout.row_bytes, free_bytes))
    rows, fitting = int(plan.config.learning.replay_rows), free_bytes // layout.row_bytes
    if rows > fitting:
        raise ConfigError(
            f"--replay-rows {rows} needs {rows * layout.row_bytes / 2**30:.1f} GB and {free_bytes / 2**30:.1f} GB "
            f"are free: use --replay-rows {int(fitting * tune.REPLAY_MEMORY_SHARE)} or fewer"
        )
    return plan
