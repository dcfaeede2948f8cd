"""What a step takes, measured on environments that sleep and on ones that compute, here and in another process."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from typing import Any

import gymnasium
import pytest
from waiting_envs import Walk

from spreeze.channels.environment_facts import EnvironmentFacts, StepCost
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.facts import find_facts
from spreeze.environments.make import make_env
from spreeze.environments.step_cost import measure_cost

STEP_S = 0.01
COMPUTES = """
import sys, time
for line in sys.stdin:
    began = time.process_time()
    while time.process_time() < began + float(line):
        pass
    print(flush=True)
"""


class Computes(Walk):
    """Computes for as long as `Walk` would wait, in this process or in one of its own."""

    def __init__(self, is_apart: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._apart: subprocess.Popen[str] | None = None
        if is_apart:
            self._apart = subprocess.Popen(
                [sys.executable, "-c", COMPUTES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )

    def _wait(self, seconds: float) -> None:
        if self._apart is None:
            until = time.thread_time() + seconds
            while time.thread_time() < until:
                pass
            return
        assert self._apart.stdin is not None
        assert self._apart.stdout is not None
        print(seconds, file=self._apart.stdin, flush=True)
        self._apart.stdout.readline()

    def close(self) -> None:
        if self._apart is not None:
            self._apart.communicate()


def measured(factory: Any = Walk, **kwargs: Any) -> StepCost:
    spec = EnvSpec("Walk()", factory=factory, kwargs=kwargs, max_episode_steps=50)
    env = make_env(spec)
    cost = measure_cost(env, spec)
    env.close()
    assert cost is not None
    return cost


def test_one_that_sleeps_waits_and_does_so_side_by_side_in_threads() -> None:
    cost = measured(step_s=STEP_S)
    assert cost.waits
    assert cost.step_s > STEP_S / 2
    assert cost.overlaps_in_threads
    assert cost.episode_steps == 50


def test_one_that_keeps_the_interpreters_lock_waits_but_not_in_threads() -> None:
    cost = measured(step_s=STEP_S, keeps_lock=True)
    assert cost.waits
    assert cost.at_once > 0
    assert not cost.overlaps_in_threads


def test_a_slow_reset_counts_as_part_of_each_step() -> None:
    cost = measured(step_s=0.0, reset_s=0.2)
    assert cost.step_s < 0.001
    assert cost.waits
    assert cost.overlaps_in_threads


@pytest.mark.parametrize("is_apart", [False, True])
def test_one_that_computes_does_not_wait_wherever_it_computes(is_apart: bool) -> None:
    cost = measured(Computes, step_s=3 * STEP_S, is_apart=is_apart)
    assert cost.step_cpu_s > STEP_S
    assert not cost.waits
    assert cost.at_once == 0  # not tried


def test_a_fast_one_is_left_alone() -> None:
    made: list[gymnasium.Env[Any, Any]] = []

    def make() -> gymnasium.Env[Any, Any]:
        made.append(Walk())
        return made[-1]

    assert not measured(make).waits
    assert len(made) == 1


def test_what_cannot_be_made_or_stepped_in_a_thread_is_not_run_in_threads() -> None:
    first = [Walk(step_s=STEP_S)]

    def make() -> Any:
        if first:
            return first.pop()
        raise ValueError("signal only works in main thread")

    cost = measured(make)
    assert cost.waits
    assert not cost.overlaps_in_threads
    assert "signal only works in main thread" in cost.threads_error


def test_what_raises_is_left_to_the_samplers() -> None:
    class Raises(Walk):
        def step(self, _action: Any) -> Any:
            raise ZeroDivisionError("the wheel fell off")

    spec = EnvSpec("Raises()", factory=Raises)
    assert measure_cost(make_env(spec), spec) is None


def test_facts_survive_their_message() -> None:
    facts = find_facts(EnvSpec("Pendulum-v1"))
    with_cost = dataclasses.replace(facts, cost=measured(step_s=STEP_S))
    for each in (facts, with_cost):
        copy = EnvironmentFacts.of(json.loads(json.dumps(each.as_json())))
        assert copy.cost == each.cost
        assert copy.render_modes == each.render_modes
        assert copy.description == each.description
