"""Measures what a step and a reset of an environment take, and whether several wait side by side in threads.

In: an environment, and how to make more of it. Out: a `StepCost`, or None where it raises: whoever steps it next will
say so.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from spreeze.channels.environment_facts import StepCost
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.batch import without_time_limit
from spreeze.environments.stepped import NO_LIMIT
from spreeze.environments.threaded import ThreadedEnvs
from spreeze.errors import one_line
from spreeze.host.process_times import ProcessTimes, read_process_times

MEASURE_S, MAX_STEPS = 0.15, 100  # a start of a run waits for this; 100 steps of a fast task take a few milliseconds
UNKNOWN_EPISODE_STEPS = 1000  # of environments without a time limit
TRIED_AT_ONCE = 3
TRIED_S = 0.2  # and two steps of each
PATIENCE_S, PATIENCE = 5.0, 5.0  # that, and so many times the time of one reset and two steps

Env = gymnasium.Env[Any, Any]


def measure_cost(env: Env, spec: EnvSpec) -> StepCost | None:
    """Measure an environment; if it waits, also several of them in threads."""
    try:
        cost = _measure_one(env)
    except Exception:  # samplers meet it again, where there is a limit to how long and how often
        return None
    return _try_threads(cost, spec) if cost.waits else cost


def _measure_one(env: Env) -> StepCost:
    inner, limit = without_time_limit(env)
    before = read_process_times()
    env.reset(seed=0)
    reset = _spent(before, read_process_times(), 1)
    step = reset
    # The first step alone: it may load what later ones need.
    for begins_again in (False, True):
        before, steps, ended = read_process_times(), 0, False
        until = time.perf_counter() + MEASURE_S
        while not ended and steps < (MAX_STEPS if begins_again else 1) and time.perf_counter() < until:
            _, _, terminated, truncated, _ = inner.step(inner.action_space.sample())
            ended, steps = bool(terminated or truncated), steps + 1
        step = _spent(before, read_process_times(), steps)
        if ended or step.wall_s > MEASURE_S:
            break
    episode_steps = UNKNOWN_EPISODE_STEPS if limit == NO_LIMIT else limit
    return StepCost(step.wall_s, step.cpu_s, reset.wall_s, reset.cpu_s, episode_steps)


class _Spent(NamedTuple):
    wall_s: float
    """Without the time in which other processes had the cores."""
    cpu_s: float


def _spent(before: ProcessTimes, after: ProcessTimes, calls: int) -> _Spent:
    spent = after.since(before)
    return _Spent(max(spent.cpu_s, spent.wall_s - spent.queued_s, 0.0) / calls, max(spent.cpu_s, 0.0) / calls)


def _try_threads(cost: StepCost, spec: EnvSpec) -> StepCost:
    """Step a few more in threads, as a sampler would, and see how many wait at once."""
    deadline = time.monotonic() + PATIENCE_S + PATIENCE * (cost.reset_s + 2 * cost.step_s)
    before = read_process_times()
    try:
        envs = ThreadedEnvs(spec, TRIED_AT_ONCE, range(TRIED_AT_ONCE))
    except Exception as error:
        return replace(cost, threads_error=f"{type(error).__name__}: {one_line(error)}")
    try:
        at_once = _count_at_once(envs, cost, deadline)
    except Exception as error:
        return replace(cost, threads_error=f"{type(error).__name__}: {one_line(error)}")
    finally:
        more_bytes = read_process_times().resident_bytes - before.resident_bytes
        envs.close()
    return replace(cost, at_once=at_once, instance_bytes=max(0, more_bytes) // TRIED_AT_ONCE)


def _count_at_once(envs: ThreadedEnvs, cost: StepCost, deadline: float) -> float:
    """Return how many environments were in a step or reset at once, on average."""
    actions, everyone = np.zeros((len(envs), envs.spaces.action_size), envs.spaces.action_type), np.arange(len(envs))
    began, steps, busy_s = time.monotonic(), 0, 0.0  # their resets have begun
    while (now := time.monotonic()) < deadline:
        if steps >= 2 * len(envs) and now >= began + TRIED_S:
            return busy_s / (now - began)
        envs.step(actions)
        stepped = everyone[envs.stepped]
        resets = np.setdiff1d(everyone[envs.idle], stepped)
        steps += len(stepped)
        busy_s += len(stepped) * cost.step_s + len(resets) * cost.reset_s
    raise TimeoutError(f"{len(envs)} of them made only {steps} steps in {now - began:.1f} s")
