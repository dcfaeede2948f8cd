"""How many environments wait side by side: decision tables, without any environment."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from spreeze.adapt.plan import Plan, adaptation_bounds, plan_processes
from spreeze.adapt.waiting import most_waiting_samplers, plan_waiting
from spreeze.channels.environment_facts import StepCost
from spreeze.config import Config
from spreeze.config.run_settings import RunSettings
from spreeze.host.hardware import Machine

GB = 2**30
TWO_CORES = Machine(cores=2, memory_bytes=8 * GB, gpus=())
FAST = StepCost(20e-6, 20e-6, 50e-6, 50e-6, 200)
SLEEPS = StepCost(0.02, 0.0002, 0.0, 0.0, 200, at_once=2.9)
KEEPS_LOCK = dataclasses.replace(SLEEPS, at_once=1.0)


def planned(cost: StepCost | None, machine: Machine = TWO_CORES, **fields: Any) -> Plan:
    asked = Config("Slow-v0").replace(**fields)
    return plan_waiting(plan_processes(asked, machine), asked, cost, machine)


def numbers(plan: Plan) -> tuple[str, int, int]:
    sampling = plan.config.sampling
    return plan.config.environment.env_threads, int(sampling.samplers), int(sampling.envs_per_sampler)


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (SLEEPS, ("yes", 1, 24)),
        (dataclasses.replace(SLEEPS, step_s=0.2), ("yes", 1, 64)),
        (dataclasses.replace(SLEEPS, step_s=20.0), ("yes", 1, 64)),
        (dataclasses.replace(SLEEPS, step_s=0.0021), ("yes", 1, 3)),
        # A reset of 1 s for each 200 steps of 1 ms.
        (dataclasses.replace(SLEEPS, step_s=0.001, reset_s=1.0), ("yes", 1, 8)),
        (KEEPS_LOCK, ("no", 16, 1)),
        # A quarter of the time on a core: four keep one of the two cores busy.
        (dataclasses.replace(SLEEPS, step_cpu_s=0.005), ("yes", 1, 4)),
        # A quarter of 8 GB.
        (dataclasses.replace(SLEEPS, instance_bytes=GB // 4), ("yes", 1, 8)),
        (dataclasses.replace(SLEEPS, instance_bytes=100 * GB), ("yes", 1, 1)),
    ],
)
def test_so_many_that_cores_or_memory_or_the_learner_become_the_limit(
    cost: StepCost, expected: tuple[str, int, int]
) -> None:
    plan = planned(cost)
    assert numbers(plan) == expected
    assert plan.most_samplers <= most_waiting_samplers(TWO_CORES.cores)


@pytest.mark.parametrize("cost", [FAST, None, dataclasses.replace(SLEEPS, step_cpu_s=0.015)])
def test_for_those_that_do_not_wait_nothing_changes(cost: StepCost | None) -> None:
    before = plan_processes(Config("Slow-v0"), TWO_CORES)
    plan = planned(cost)
    assert plan.config.environment.env_threads == "no"
    assert plan.config.sampling.stagger_episodes == "no"
    assert plan.config.replace(env_threads="auto", stagger_episodes="auto") == before.config
    assert plan.choices[:-2] == before.choices


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"samplers": 2}, ("yes", 2, 12)),
        ({"envs_per_sampler": 6}, ("yes", 4, 6)),
        ({"samplers": 3, "envs_per_sampler": 5}, ("yes", 3, 5)),
        ({"env_threads": "no"}, ("no", 16, 1)),
        ({"env_threads": "no", "max_samplers": 6}, ("no", 6, 1)),
        ({"env_threads": "no", "samplers": 3}, ("no", 3, 1)),
    ],
)
def test_what_is_set_stays(fields: dict[str, Any], expected: tuple[str, int, int]) -> None:
    plan = planned(SLEEPS, **fields)
    assert numbers(plan) == expected
    assert not {choice.setting for choice in plan.choices} & fields.keys()


def test_what_an_earlier_run_has_found_stays() -> None:
    asked, found = Config("Slow-v0"), RunSettings(3, 8, 128, 1)
    plan = plan_waiting(plan_processes(asked, TWO_CORES, found), asked, SLEEPS, TWO_CORES)
    assert numbers(plan) == ("yes", 3, 8)


def test_each_choice_is_recorded_once_with_the_figures_behind_it() -> None:
    plan = planned(SLEEPS)
    settings = [choice.setting for choice in plan.choices]
    assert len(settings) == len(set(settings))
    reasons = {choice.setting: choice.reason for choice in plan.choices}
    assert reasons["env_threads"] == "a step takes 20 ms; 0.2 ms per step on a core: environments wait side by side"
    assert "24 environments" in reasons["envs_per_sampler"]
    assert "1.0 of 3 in threads" in {c.setting: c.reason for c in planned(KEEPS_LOCK).choices}["env_threads"]


@pytest.mark.parametrize(
    ("step_s", "reset_s", "value"),
    [(0.001, 1.0, "yes"), (0.1, 1.0, "no"), (20e-6, 0.01, "no"), (20e-6, 0.1, "yes")],
)
def test_episodes_are_staggered_where_resets_take_long(step_s: float, reset_s: float, value: str) -> None:
    cost = StepCost(step_s, step_s, reset_s, reset_s, 1000)
    assert planned(cost).config.sampling.stagger_episodes == value
    assert planned(cost, serial=True).config.sampling.stagger_episodes == "no"
    assert planned(cost, stagger_episodes="yes").config.sampling.stagger_episodes == "yes"


def test_a_serial_run_has_no_threads() -> None:
    assert planned(SLEEPS, serial=True).config.environment.env_threads == "no"


def test_fewer_environments_than_were_chosen_are_not_tried() -> None:
    asked = Config("Slow-v0")
    assert adaptation_bounds(planned(SLEEPS), asked, TWO_CORES).envs_per_sampler == (24, 64)
    assert adaptation_bounds(planned(SLEEPS), asked, TWO_CORES).samplers == (1, 16)
    assert adaptation_bounds(planned(FAST), asked, TWO_CORES).envs_per_sampler == (4, 64)
