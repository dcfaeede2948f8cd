"""Choices from the cost of steps and resets: what waits side by side, and which episodes are shortened.

Pure functions. In: what a step costs, as measured at the start, and the machine. Out: a `Plan` with these choices.
"""

from __future__ import annotations

import math
from dataclasses import replace

from spreeze.adapt import defaults
from spreeze.adapt.plan import Plan
from spreeze.channels.environment_facts import StepCost
from spreeze.config import Config
from spreeze.config.choice import Choice
from spreeze.host.hardware import Machine

# Environment steps per second of all environments together, which is what their number is chosen for. On a CPU the
# learner's need: with the usual ratio it is more than a learner on two cores can use, and costs a tenth of a core.
CPU_TARGET_HZ, GPU_TARGET_HZ = 1200.0, 10_000.0
CPU_SHARE = 0.5  # of the cores, that all environments may take
MEMORY_SHARE = 0.25  # of the free memory: the evaluator has environments too
LONG_RESET_S, LONG_RESET_STEPS = 0.05, 20  # resets of 16 environments then take a second
MAX_ENVS_PER_CORE = (
    32  # of all samplers, at the start: simulators may share a server; the adaptation may add samplers
)
MAX_THREADS = 64  # of one sampler: its Python code runs on one core
# Where each environment needs a process: it takes so much memory, and 0.4 s of a core to start.
MAX_PROCESSES_PER_CORE, PROCESS_BYTES = 8, 70 * 2**20


def most_waiting_samplers(cores: int) -> int:
    """Return how many samplers there may be before the environment is known."""
    return min(defaults.MAX_CHOSEN_SAMPLERS, MAX_PROCESSES_PER_CORE * cores)


def plan_waiting(plan: Plan, asked: Config, cost: StepCost | None, machine: Machine) -> Plan:
    """Choose whether environments have threads, and for those that wait how many there are.

    asked: the config in which what the user has not set is still "auto".
    """
    plan = plan.take(_choose_threads(plan.config, cost)).take(_choose_stagger(plan.config, cost))
    if cost is None or not cost.waits or plan.config.serial or plan.recalled is not None:
        return plan
    has_threads = plan.config.environment.env_threads == "yes"
    is_on_cpu = plan.config.learning.device == "cpu"
    each_bytes = cost.instance_bytes + (0 if has_threads else PROCESS_BYTES)
    total, reason = _count_environments(cost, each_bytes, machine, CPU_TARGET_HZ if is_on_cpu else GPU_TARGET_HZ)
    most, bound, sampling = most_waiting_samplers(machine.cores), asked.adaptation.max_samplers, asked.sampling
    most = most if bound == "auto" else min(most, bound)
    for choice in _spread(total, reason, has_threads, most, sampling.samplers, sampling.envs_per_sampler):
        plan = _revise(plan, choice, asked)
    return plan


def describe_cost(cost: StepCost) -> str:
    """Return what a step takes, in words."""
    reset = f", a reset {_duration(cost.reset_s)}" if cost.reset_s > cost.step_s else ""
    return f"a step takes {_duration(cost.step_s)}{reset}; {_duration(cost.mean_cpu_s)} per step on a core"


def _choose_threads(config: Config, cost: StepCost | None) -> Choice:
    def choice(value: str, reason: str) -> Choice:
        return Choice("env_threads", value, reason)

    if config.serial:
        return choice("no", "serial: one environment after the other")
    if cost is None:
        return choice("no", "what a step takes was not measured")
    costs = describe_cost(cost)
    if not cost.waits:
        return choice("no", costs)
    if cost.overlaps_in_threads:
        return choice("yes", f"{costs}: environments wait side by side")
    why = cost.threads_error or f"{cost.at_once:.1f} of 3 in threads waited at once"
    return choice("no", f"{costs}, but not in threads ({why}): in processes side by side")


def _choose_stagger(config: Config, cost: StepCost | None) -> Choice:
    if config.serial or cost is None:
        return Choice("stagger_episodes", "no", "serial" if config.serial else "what a reset takes was not measured")
    steps = cost.reset_s / max(cost.step_s, 1e-9)
    costs = f"a reset takes {_duration(cost.reset_s)}, as long as {steps:,.0f} steps"
    if cost.reset_s > LONG_RESET_S and steps > LONG_RESET_STEPS:
        return Choice("stagger_episodes", "yes", f"{costs}: episodes are not to end all at once")
    return Choice("stagger_episodes", "no", costs)


def _count_environments(cost: StepCost, each_bytes: int, machine: Machine, target_hz: float) -> tuple[int, str]:
    """Return how many environments there should be, and what limits them. each_bytes: the memory of one."""
    wanted = math.ceil(target_hz * cost.mean_s)
    by_cpu = int(CPU_SHARE * machine.cores * cost.mean_s / max(cost.mean_cpu_s, 1e-6))
    by_memory = int(MEMORY_SHARE * machine.memory_bytes) // max(each_bytes, 1)
    most = MAX_ENVS_PER_CORE * machine.cores
    total = max(1, min(wanted, by_cpu, by_memory, most))
    if total in (wanted, most):
        return total, f"{total} environments that wait make {total / cost.mean_s:.0f} steps/s"
    limit = "the cores" if total == by_cpu else f"the memory, at {each_bytes / 2**20:.0f} MB each,"
    return total, f"environments wait, and {limit} would be enough for {total}"


def _spread(
    total: int, reason: str, has_threads: bool, most: int, samplers: int | str, envs: int | str
) -> list[Choice]:
    """Spread environments over samplers; samplers and envs: as the user has set them, or "auto"."""
    if isinstance(samplers, int) and isinstance(envs, int):
        return []
    if isinstance(samplers, int):
        envs = min(MAX_THREADS, math.ceil(total / samplers)) if has_threads else 1
    elif isinstance(envs, int):
        samplers = min(most, math.ceil(total / envs))
    elif has_threads:
        samplers = min(most, math.ceil(total / MAX_THREADS))
        envs = min(MAX_THREADS, math.ceil(total / samplers))
    else:
        samplers, envs = min(most, total), 1
        reason += "; each in a process of its own"
    return [
        Choice("max_samplers", max(most, int(samplers)), "environments that wait leave the cores to others"),
        Choice("samplers", int(samplers), reason),
        Choice("envs_per_sampler", int(envs), reason),
    ]


def _revise(plan: Plan, choice: Choice, asked: Config) -> Plan:
    """Replace a choice that was made before the environment was known."""
    if asked.flat()[choice.setting] != "auto":
        return plan
    others = tuple(other for other in plan.choices if other.setting != choice.setting)
    config = plan.config.replace(**{choice.setting: choice.value})
    return replace(plan, config=config, choices=(*others, choice))


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
