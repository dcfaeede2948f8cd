"""Replaces the "auto" settings of a config by numbers, with the reason for each choice.

In: the config as asked for, and the machine. Out: a `Plan`.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, replace
from importlib import metadata

from spreeze.adapt import defaults
from spreeze.adapt.recipes import choose_recipe
from spreeze.adapt.tune import Bounds
from spreeze.adapt.update_times import UpdateTimes
from spreeze.channels.machines import MAX_MACHINES
from spreeze.channels.metrics import MAX_SAMPLERS
from spreeze.channels.transitions import RowLayout
from spreeze.config import Auto, Config, EvaluationConfig, LearningConfig
from spreeze.config.choice import Choice
from spreeze.config.own_settings import find_algorithm
from spreeze.config.run_settings import RunSettings
from spreeze.errors import ConfigError
from spreeze.host.hardware import Machine
from spreeze.host.threads import learner_thread_candidates


@dataclass(frozen=True)
class Plan:
    """A config, and the choices that were made in it."""

    config: Config
    choices: tuple[Choice, ...] = ()
    recalled: RunSettings | None = None
    """The settings that an earlier run has found, if they are used."""
    warnings: tuple[str, ...] = ()
    """Warnings to record as events once there is a run folder."""

    def warn(self, warning: str | None) -> Plan:
        """Return the plan with this warning added, if there is one."""
        return self if warning is None else replace(self, warnings=(*self.warnings, warning))

    def take(self, choice: Choice) -> Plan:
        """Use a choice, unless the user or an earlier choice has set that field."""
        if self.config.flat()[choice.setting] != "auto":
            return self
        config = self.config.replace(**{choice.setting: choice.value})
        return replace(self, config=config, choices=(*self.choices, choice))

    @property
    def settings(self) -> RunSettings:
        """The settings a run starts with; 0 threads if the learner is to find the best number itself."""
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
        """The largest number of samplers that there may ever be at once."""
        samplers, adaptation = int(self.config.sampling.samplers), self.config.adaptation
        return max(samplers, int(adaptation.max_samplers)) if adaptation.adapt else samplers


def plan_processes(
    config: Config, machine: Machine, recalled: RunSettings | None = None, update_times: UpdateTimes | None = None
) -> Plan:
    """Choose device, processes, batch size and ratio, in this order: the first choice of a setting stays.

    recalled: what an earlier run has found. update_times: of one update, measured on this machine's GPUs.
    """
    if config.sampling.realtime is not None:
        machine = replace(machine, cores=max(1, machine.cores - 1))  # the sampler has one of its own
        plan = _plan_realtime(config)
    else:
        plan = _plan_serial(config) if config.serial else Plan(config)
    plan, config = _choose_devices(plan, machine, update_times), plan.config
    _require_devices(plan.config.learning, usable_gpu_count(machine))
    slowest = _slowest_device(plan.config.learning)
    for choice in defaults.choose_bounds(machine.cores, slowest):
        plan = plan.take(_within_what_is_set(choice, config))
    plan = _use_recalled(plan, config, machine, recalled)
    algorithm = find_algorithm(config.algo)
    recipe = algorithm.recipe.settings(algorithm.policy_kind)
    for choice in choose_recipe(config.algo, recipe, config.env, slowest):
        plan = plan.take(_within_exploration_set(choice, config))
    set_by_user = _parallelism_set_by_user(config)
    if _is_mixed(plan.config.learning) and "batch_size" not in set_by_user:
        for choice in defaults.choose_mixed_batch():
            plan = plan.take(_within_bounds(choice, plan.config))
    for choice in defaults.choose_parallelism(machine.cores, slowest, set_by_user):
        plan = plan.take(_within_bounds(choice, plan.config))
    _require_room_for_samplers(plan.config)
    return plan


def adaptation_bounds(plan: Plan, asked: Config, machine: Machine) -> Bounds:
    """Return how far an adaptation may go; asked: the config in which what the user has not set is still "auto"."""
    adaptation, learning = plan.config.adaptation, plan.config.learning
    samplers, envs = asked.sampling.samplers, asked.sampling.envs_per_sampler
    batch_size, threads = asked.learning.batch_size, asked.learning.learner_threads
    replay_rows = asked.learning.replay_rows
    smallest, largest = batch_size_bounds(plan.config, replay_rows)
    cores_per_process = max(1, machine.cores // (2 if learning.is_split else 1))
    is_on_cpu = _slowest_device(learning) == "cpu"
    candidates = tuple(learner_thread_candidates(cores_per_process)) if is_on_cpu else (1,)
    may_pin = sys.platform == "linux" and machine.cores >= defaults.MIN_CORES_TO_PIN
    return Bounds(
        samplers=(1, int(adaptation.max_samplers)) if samplers == "auto" else (samplers,) * 2,
        envs_per_sampler=_envs_bounds(plan.config) if envs == "auto" else (envs,) * 2,
        batch_size=(smallest, largest) if batch_size == "auto" else (batch_size,) * 2,
        learner_threads=candidates if threads == "auto" else (threads,),
        cores=machine.cores,
        may_pin=may_pin and adaptation.pin_cores == "auto",
    )


def _envs_bounds(config: Config) -> tuple[int, int]:
    low, high = defaults.ENVS_PER_SAMPLER
    if config.environment.env_threads == "yes":  # fewer make fewer steps, and leave the cores to nobody
        low = int(config.sampling.envs_per_sampler)
    return low, max(low, high)


def plan_memory(plan: Plan, layout: RowLayout, machine: Machine) -> Plan:
    """Choose what depends on the size of a row; raise if rings do not fit this machine, or the replay its device."""
    plan = plan.take(defaults.ring_capacity_rows(layout.row_bytes))
    plan = plan.take(defaults.sampler_memory_mb(machine.memory_bytes, max(1, plan.most_samplers)))
    sampling, device = plan.config.sampling, plan.config.learning.device
    ring_bytes = int(sampling.samplers) * int(sampling.ring_rows) * layout.row_bytes
    free_bytes = machine.memory_bytes - ring_bytes
    if free_bytes <= 0:
        raise ConfigError(
            f"--ring-rows {sampling.ring_rows} for {sampling.samplers} samplers needs {ring_bytes / 2**30:.1f} GB "
            f"and {machine.memory_bytes / 2**30:.1f} GB are free: lower --ring-rows or --samplers"
        )
    free_bytes = min(
        _free_bytes(where, replays, free_bytes, machine) for where, replays in _replays_by_device(plan.config).items()
    )
    plan = plan.take(defaults.replay_capacity_rows(layout.row_bytes, free_bytes, device))
    rows, fitting = int(plan.config.learning.replay_rows), free_bytes // layout.row_bytes
    if rows > fitting or fitting < int(plan.config.learning.batch_size):
        raise ConfigError(
            f"--replay-rows {rows} needs {rows * layout.row_bytes / 2**30:.1f} GB and {free_bytes / 2**30:.1f} GB "
            f"are free: use --replay-rows {int(fitting * defaults.REPLAY_MEMORY_SHARE)} or fewer"
        )
    return plan


def plan_checkpoints(plan: Plan, layout: RowLayout, free_bytes: int) -> Plan:
    """Leave the replay out of checkpoints, with a warning, if the disk has no room for it."""
    wanted = plan.config.checkpoints
    if not wanted.checkpoint_interval_s or not wanted.checkpoint_replay:
        return plan
    # Two checkpoints are kept while the next is written: in the worst case they have no row in common.
    needed = 3 * int(plan.config.learning.replay_rows) * layout.row_bytes
    if needed <= free_bytes:
        return plan
    return replace(plan, config=plan.config.replace(checkpoint_replay=False)).warn(
        f"checkpoints leave the replay out: it may take {needed / 1e9:.1f} GB on this disk and "
        f"{free_bytes / 1e9:.1f} GB are free; make room, or lower --replay-rows"
    )


def usable_gpu_count(machine: Machine) -> int:
    """Return how many GPUs torch can use; a CPU build of torch, known by its version, can use none."""
    try:
        return 0 if "+cpu" in metadata.version("torch") else len(machine.gpus)
    except metadata.PackageNotFoundError:
        return 0  # `spreeze doctor` says how to install it


def batch_size_bounds(config: Config, replay_rows: int | Auto) -> tuple[int, int]:
    """Return the smallest and the largest batch that an adaptation tries, where the maximum is chosen."""
    largest = int(config.adaptation.max_batch_size)
    if replay_rows != "auto":
        largest = min(largest, replay_rows)
    return min(defaults.smallest_batch_size(_slowest_device(config.learning)), largest), largest


# --- in one process -----------------------------------------------------------------------------------------------


def _plan_serial(config: Config) -> Plan:
    """Choose what depends neither on time nor on other processes: the ratio is exact, and two sides take turns."""
    low, high = config.learning.min_updates_per_step, config.learning.max_updates_per_step
    if high is None or high == "auto":
        high = float(low) if low not in ("auto", 0) else defaults.SERIAL_UPDATES_PER_STEP
    exchange = "lock-step" if config.learning.is_split else config.learning.exchange_updates
    fields = {"adapt": False, "max_updates_per_step": high, "exchange_updates": exchange}
    plan = Plan(config.replace(**fields, dashboard=False, video=False, video_every=0))
    for choice in defaults.choose_for_serial(high):
        if choice.setting != "split" or not config.learning.is_split:
            plan = plan.take(choice)
    return plan


# --- one real robot ---------------------------------------------------------------------------------------------


def _plan_realtime(config: Config) -> Plan:
    """Choose what follows from one environment: nothing adapts the number of samplers, and nobody else plays."""
    plan = Plan(config.replace(adapt=False, view=False, video=False, last_evaluation=False))
    for choice in defaults.choose_for_realtime():
        plan = plan.take(choice)
    episodes = defaults.choose_realtime_episodes(config.evaluation.eval_episodes, EvaluationConfig.eval_episodes)
    config = plan.config.replace(**{episodes.setting: episodes.value})
    return replace(plan, config=config, choices=(*plan.choices, episodes))


# --- where the learner runs -------------------------------------------------------------------------------------


def _choose_devices(plan: Plan, machine: Machine, update_times: UpdateTimes | None) -> Plan:
    """Choose the device, and whether actor and critics learn in processes of their own."""
    asked, usable_gpus = plan.config, usable_gpu_count(machine)
    has_actor = find_algorithm(asked.algo).has_actor
    if asked.learning.is_split and not has_actor:
        raise ConfigError(
            f"{asked.algo} has no actor that could learn on a device of its own: use --device instead of "
            "--actor-device and --critic-device"
        )
    if asked.learning.is_split:
        critic_device = asked.learning.device_of("critic")
        if asked.learning.device not in ("auto", critic_device):
            raise ConfigError(
                f"--device {asked.learning.device} contradicts --critic-device and --actor-device: leave it out"
            )
        return plan.take(Choice("device", critic_device, "what is not split follows the critics"))
    plan = plan.take(defaults.choose_device(usable_gpus))
    device = plan.config.learning.device
    devices = ["cuda:0", "cuda:1"] if asked.learning.device == "auto" and usable_gpus > 1 else [device]
    measured = update_times if _is_as_measured(asked) else None
    if not has_actor:
        plan = plan.take(Choice("split", "no", f"{asked.algo} has no actor"))
    plan = plan.take(defaults.choose_split(machine.cores, device, len(devices), measured))
    return _with_device_for_each_role(plan, devices) if plan.config.learning.split == "yes" else plan


def _with_device_for_each_role(plan: Plan, devices: list[str]) -> Plan:
    """Give the critics the first of these devices and the actor the last."""
    reason = "a GPU each" if len(devices) > 1 else "as --device"
    choices = (Choice("critic_device", devices[0], reason), Choice("actor_device", devices[-1], reason))
    config = plan.config.replace(**{choice.setting: choice.value for choice in choices})
    return replace(plan, config=config, choices=(*plan.choices, *choices))


def _is_as_measured(config: Config) -> bool:
    """Return whether an update of this config is one that `spreeze bench split` measures."""
    learning = config.learning
    is_usual_delay = learning.actor_delay in ("auto", find_algorithm(config.algo).recipe.actor_delay)
    return is_usual_delay and learning.atoms == 1 and not learning.layer_norm


def _require_devices(learning: LearningConfig, usable_gpus: int) -> None:
    """Raise unless every device is there, and can run updates as asked."""
    for name in ("actor_device", "critic_device", "device"):
        device = getattr(learning, name)
        if device not in ("cpu", None) and int(device.partition(":")[2] or 0) >= usable_gpus:
            flag = "--" + name.replace("_", "-")
            raise ConfigError(
                f"{flag} {device}: {usable_gpus} GPUs can be used here; use {flag} cpu, or see `spreeze doctor`"
            )
    engine = learning.update_engine
    if _device_kinds(learning) == {"cpu"} and engine in ("graph", "fused"):
        raise ConfigError(f"--update-engine {engine} needs a GPU: leave it out, or use --update-engine eager")
    if "cpu" not in _device_kinds(learning) and engine == "bfloat16":
        raise ConfigError(f"--update-engine {engine} is for CPUs: leave it out, or use --update-engine fused")


def _device_kinds(learning: LearningConfig) -> set[str]:
    return {learning.device_of(role).partition(":")[0] for role in learning.learner_roles}


def _is_mixed(learning: LearningConfig) -> bool:
    """Return whether one learner role is on a GPU and the other on the CPU."""
    return len(_device_kinds(learning)) > 1


def _slowest_device(learning: LearningConfig) -> str:
    """Return where the slowest learner role runs: what is chosen has to suit it."""
    return "cpu" if "cpu" in map(learning.device_of, learning.learner_roles) else learning.device


# --- what an earlier run has found ------------------------------------------------------------------------------


def _use_recalled(plan: Plan, asked: Config, machine: Machine, recalled: RunSettings | None) -> Plan:
    """Use remembered settings if all of them are allowed: they were measured together."""
    if recalled is None:
        return plan
    is_pinned = asked.adaptation.pin_cores == "yes"
    if not _is_within(recalled, adaptation_bounds(plan, asked, machine), is_pinned):
        return plan
    plan = replace(plan, recalled=recalled)
    for setting in ("samplers", "envs_per_sampler", "batch_size", "learner_threads"):
        reason = "found by an earlier run; --fresh ignores it"
        plan = plan.take(Choice(setting, getattr(recalled, setting), reason))
    return plan


def _is_within(settings: RunSettings, allowed: Bounds, is_pinned: bool) -> bool:
    return (
        allowed.samplers[0] <= settings.samplers <= allowed.samplers[1]
        and allowed.envs_per_sampler[0] <= settings.envs_per_sampler <= allowed.envs_per_sampler[1]
        and allowed.batch_size[0] <= settings.batch_size <= allowed.batch_size[1]
        and settings.learner_threads in allowed.learner_threads
        and (allowed.may_pin or settings.pinned == is_pinned)
    )


# --- choices that yield to what the user has set ------------------------------------------------------------------


def _parallelism_set_by_user(config: Config) -> dict[str, int | float]:
    """Return what the user has set of the settings that the choice of parallelism has to fit."""
    names = ("samplers", "batch_size", "replay_rows", "min_updates_per_step", "max_updates_per_step")
    flat = config.flat()
    return {name: flat[name] for name in names if flat[name] not in ("auto", None)}


def _within_exploration_set(choice: Choice, asked: Config) -> Choice:
    """Fit one end of the range of exploration noise to the other end, if the user has set that."""
    noise, most = asked.sampling.exploration, asked.sampling.exploration_high
    if choice.setting == "exploration_high" and noise != "auto":
        return replace(choice, value=noise, reason="as --exploration: all environments alike")
    if choice.setting == "exploration" and most != "auto":
        return replace(choice, value=min(most, choice.value))
    return choice


def _within_what_is_set(choice: Choice, asked: Config) -> Choice:
    """Raise a chosen maximum to what the user has set."""
    value, samplers, batch_size = int(choice.value), asked.sampling.samplers, asked.learning.batch_size
    if choice.setting == "max_samplers":
        value = max(value, 0 if samplers == "auto" else samplers)
    elif choice.setting == "max_batch_size":
        value = max(value, 0 if batch_size == "auto" else batch_size)
    return replace(choice, value=value)


def _within_bounds(choice: Choice, config: Config) -> Choice:
    """Clip a choice to the bounds of the adaptation."""
    if choice.setting == "samplers":
        low, high = 1, max(1, int(config.adaptation.max_samplers))
    elif choice.setting == "batch_size":
        low, high = batch_size_bounds(config, config.learning.replay_rows)
    else:
        return choice
    value = min(high, max(low, int(choice.value)))
    return choice if value == choice.value else Choice(choice.setting, value, f"{choice.reason}; within its bounds")


# --- room on this machine ---------------------------------------------------------------------------------------


def _require_room_for_samplers(config: Config) -> None:
    """Raise if there may be more samplers than the metrics channel has records for; other machines have some too."""
    room = MAX_SAMPLERS - (MAX_MACHINES if config.cluster.cluster is not None else 0)
    for flag, number in (
        ("--samplers", int(config.sampling.samplers)),
        ("--max-samplers", int(config.adaptation.max_samplers)),
    ):
        if number > room:
            raise ConfigError(f"{flag} {number} is more than there is room for: {room}")


def _replays_by_device(config: Config) -> dict[str, int]:
    """Return how many replays each device holds: one for each learner role."""
    return Counter(config.learning.device_of(role) for role in config.learning.learner_roles)


def _free_bytes(device: str, replays: int, free_host_bytes: int, machine: Machine) -> int:
    """Return the free memory of a device for each of its replays."""
    gpu = int(device.partition(":")[2] or 0)
    return (free_host_bytes if device == "cpu" else machine.gpus[gpu].memory_bytes) // replays
