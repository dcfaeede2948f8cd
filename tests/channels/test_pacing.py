from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spreeze.channels.control import ControlChannel
from spreeze.channels.metrics import MetricsChannel
from spreeze.channels.pacing import SLACK_VECTOR_STEPS, RatioGate
from spreeze.config import Config

SAMPLERS, ENVS = 2, 4
SLACK = SLACK_VECTOR_STEPS * SAMPLERS * ENVS
WARMUP = 100
LAUNCHES_AHEAD = 2


def resolved(**fields: Any) -> Config:
    """A config in which everything that the gate reads is chosen."""
    chosen: dict[str, Any] = {"samplers": SAMPLERS, "envs_per_sampler": ENVS, "warmup_steps": WARMUP}
    chosen |= {"min_updates_per_step": 0.0, "max_updates_per_step": None}
    return Config("Pendulum-v1").replace(**(chosen | fields))


def gate_at(config: Config, env_steps: int, consumed: int, updates: int, stored: int | None = None) -> RatioGate:
    metrics = MetricsChannel()
    metrics.samplers[0]["env_steps"] = env_steps // 2
    metrics.samplers[1]["env_steps"] = env_steps - env_steps // 2
    metrics.learner["rows_consumed"] = consumed
    metrics.learner["rows_stored"] = consumed if stored is None else stored
    metrics.learner["updates"] = updates
    control = ControlChannel()
    control.order(batch_size=1, learner_threads=1, rings=SAMPLERS, envs_at_work=SAMPLERS * ENVS)
    return RatioGate(config, metrics, control)


# --- decisions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "env_steps", "updates", "may_step"),
    [
        # Without a lower bound samplers never wait.
        ({}, 0, 0, True),
        ({}, 10**9, 0, True),
        # During the warm-up and the slack after it nobody waits, whatever the bound.
        ({"min_updates_per_step": 1000.0}, 0, 0, True),
        ({"min_updates_per_step": 1000.0}, WARMUP, 0, True),
        ({"min_updates_per_step": 1000.0}, WARMUP + SLACK, 0, True),
        ({"min_updates_per_step": 1.0}, WARMUP + SLACK + 1, 0, False),
        ({"min_updates_per_step": 1.0}, WARMUP + SLACK + 1, 1, True),
        ({"min_updates_per_step": 0.5}, WARMUP + SLACK + 100, 49, False),
        ({"min_updates_per_step": 0.5}, WARMUP + SLACK + 100, 50, True),
        ({"min_updates_per_step": 4.0}, WARMUP + SLACK + 10, 39, False),
        ({"min_updates_per_step": 4.0}, WARMUP + SLACK + 10, 40, True),
        # The limit of environment steps.
        ({"max_env_steps": 500}, 499, 0, True),
        ({"max_env_steps": 500}, 500, 0, False),
        ({"max_env_steps": 500}, 501, 0, False),
        ({"max_env_steps": 50}, 50, 0, False),
        # The learner's limits are none of the samplers'.
        ({"max_updates": 5}, 10**6, 5, True),
        ({"max_updates_per_step": 0.1}, 10**6, 0, True),
    ],
)
def test_sampler_may_step(fields: dict[str, Any], env_steps: int, updates: int, may_step: bool) -> None:
    assert gate_at(resolved(**fields), env_steps, env_steps, updates).sampler_may_step() is may_step


@pytest.mark.parametrize(
    ("fields", "consumed", "updates", "may_update"),
    [
        # Not before the warm-up is in the replay.
        ({}, 0, 0, False),
        ({}, WARMUP - 1, 0, False),
        ({}, WARMUP, 0, True),
        ({}, WARMUP, 10**9, True),
        # One update is allowed right after the warm-up, then as many as the bound says.
        ({"max_updates_per_step": 1.0}, WARMUP, 0, True),
        ({"max_updates_per_step": 1.0}, WARMUP, 1, False),
        ({"max_updates_per_step": 1.0}, WARMUP + 1, 1, True),
        ({"max_updates_per_step": 1.0}, WARMUP + 1, 2, False),
        ({"max_updates_per_step": 0.25}, WARMUP + 40, 10, True),
        ({"max_updates_per_step": 0.25}, WARMUP + 40, 11, False),
        ({"max_updates_per_step": 8.0}, WARMUP + 10, 80, True),
        ({"max_updates_per_step": 8.0}, WARMUP + 10, 81, False),
        # The limit of updates is exact.
        ({"max_updates": 5}, WARMUP, 4, True),
        ({"max_updates": 5}, WARMUP, 5, False),
        # The samplers' limits are none of the learner's.
        ({"max_env_steps": 200}, 10**6, 7, True),
        ({"min_updates_per_step": 1.0}, WARMUP, 10**6, True),
    ],
)
def test_learner_may_update(fields: dict[str, Any], consumed: int, updates: int, may_update: bool) -> None:
    # Samplers may be far ahead of what the learner has consumed: only the latter counts here.
    assert (
        bool(gate_at(resolved(**fields), consumed + 10**6, consumed, updates).updates_allowed(updates)) is may_update
    )


@pytest.mark.parametrize(
    ("fields", "consumed", "launched", "allowed"),
    [
        # Without an upper bound there is no number at which to stop.
        ({}, WARMUP - 1, 0, 0),
        ({}, WARMUP, 0, sys.maxsize),
        ({}, WARMUP, 10**12, sys.maxsize),
        ({"max_updates": 100}, WARMUP, 0, 100),
        ({"max_updates": 100}, WARMUP, 93, 7),
        ({"max_updates": 100}, WARMUP, 100, 0),
        ({"max_updates": 100}, WARMUP, 101, 0),
        ({"max_updates_per_step": 1.0}, WARMUP, 0, 1),
        ({"max_updates_per_step": 1.0}, WARMUP + 7, 0, 8),
        ({"max_updates_per_step": 1.0}, WARMUP + 7, 8, 0),
        ({"max_updates_per_step": 1.0}, WARMUP + 7, 20, 0),
        ({"max_updates_per_step": 0.25}, WARMUP + 40, 0, 11),
        ({"max_updates_per_step": 0.25}, WARMUP + 41, 0, 12),
        ({"max_updates_per_step": 0.25}, WARMUP + 44, 0, 12),
        ({"max_updates_per_step": 0.25}, WARMUP + 45, 0, 13),
        ({"max_updates_per_step": 8.0}, WARMUP + 10, 74, 7),
        ({"max_updates_per_step": 1.0, "max_updates": 5}, WARMUP + 7, 0, 5),
        ({"max_updates_per_step": 1.0, "max_updates": 50}, WARMUP + 7, 6, 2),
    ],
)
def test_as_many_updates_are_allowed_as_the_bounds_leave(
    fields: dict[str, Any], consumed: int, launched: int, allowed: int
) -> None:
    # What is launched counts, not what the GPU has finished and the counters show.
    for finished in (0, launched):
        gate = gate_at(resolved(**fields), consumed + 10**6, consumed, finished)
        assert gate.updates_allowed(launched) == allowed


@settings(deadline=None)  # the machine may be busy
@given(
    high=st.floats(1e-3, 64.0),
    max_updates=st.one_of(st.none(), st.integers(1, 300)),
    consumed=st.integers(0, 300),
    launched=st.integers(0, 300),
)
def test_updates_at_once_are_as_many_as_one_by_one(
    high: float, max_updates: int | None, consumed: int, launched: int
) -> None:
    config = resolved(max_updates_per_step=high, max_updates=max_updates)
    gate = gate_at(config, 10**6, consumed, 0)

    def may_update(updates: int) -> bool:
        below_limit = max_updates is None or updates < max_updates
        return consumed >= WARMUP and updates < high * (consumed - WARMUP) + 1 and below_limit

    allowed = gate.updates_allowed(launched)
    assert may_update(launched + allowed - 1) if allowed else not may_update(launched)
    assert not may_update(launched + allowed)


@pytest.mark.parametrize(("updates", "launched", "allowed"), [(0, 0, 0), (1, 0, 129), (1, 129, 0), (50, 100, 78)])
def test_actor_waits_for_the_first_update_of_the_critics_and_leads_by_one_exchange(
    updates: int, launched: int, allowed: int
) -> None:
    """Else a run that ends meanwhile has scored a policy that has learned nothing, without having made an update."""
    metrics = MetricsChannel()
    metrics.actor["rows_consumed"] = metrics.actor["rows_stored"] = WARMUP
    metrics.learner["updates"] = updates
    gate = RatioGate(resolved(exchange_updates=128), metrics, ControlChannel(), "actor")
    assert gate.updates_allowed(launched) == allowed


@pytest.mark.parametrize(("stored", "may_update"), [(0, False), (1, True)])
def test_learner_needs_a_row_that_could_be_used(stored: int, may_update: bool) -> None:
    assert bool(gate_at(resolved(), WARMUP, WARMUP, 0, stored).updates_allowed(0)) is may_update


def test_steps_of_all_samplers_count() -> None:
    metrics = MetricsChannel()
    gate = RatioGate(resolved(max_env_steps=10), metrics, ControlChannel())
    metrics.samplers[0]["env_steps"] = 5
    assert gate.sampler_may_step()
    metrics.samplers[1]["env_steps"] = 5
    assert not gate.sampler_may_step()


@pytest.mark.parametrize("name", ["min_updates_per_step", "max_updates_per_step"])
def test_gate_needs_a_resolved_config(name: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        RatioGate(resolved(**{name: "auto"}), MetricsChannel(), ControlChannel())


# --- nobody waits for ever --------------------------------------------------------------------------------------


class Run:
    """Samplers and a learner that continue whenever the gate lets them, through rings of a bounded size.

    The learner launches several updates at once where it may, one otherwise, and is a few launches ahead of those
    that its counter shows as finished, as on a GPU.
    """

    def __init__(self, config: Config, ring_rows: int, updates_a_launch: int = 1) -> None:
        self.config = config
        self.updates_a_launch = updates_a_launch
        self.launched = 0
        self.under_way: list[int] = []
        self.metrics = MetricsChannel()
        self.samplers, self.envs = int(config.sampling.samplers), int(config.sampling.envs_per_sampler)
        self.control = ControlChannel()
        self.control.order(1, 1, self.samplers, self.samplers * self.envs)
        self.gate = RatioGate(config, self.metrics, self.control)
        self.ring_rows = ring_rows
        self.rings = [0] * self.samplers
        self.unwritten = [0] * self.samplers  # rows of a step that wait for room in the ring

    @property
    def updates(self) -> int:
        return int(self.metrics.learner["updates"][0])

    @property
    def consumed(self) -> int:
        return int(self.metrics.learner["rows_consumed"][0])

    @property
    def env_steps(self) -> int:
        return int(self.metrics.samplers["env_steps"].sum())

    def is_over(self) -> bool:
        """Whether the supervisor would stop the run."""
        limits = self.config.limits
        return (limits.max_updates is not None and self.updates >= limits.max_updates) or (
            limits.max_env_steps is not None and self.consumed >= limits.max_env_steps
        )

    def let_sampler_go_on(self, index: int) -> bool:
        """One turn of a sampler; says whether it got anywhere."""
        if not self.unwritten[index]:
            if not self.gate.sampler_may_step():
                return False
            self.unwritten[index] = self.envs
        written = min(self.unwritten[index], self.ring_rows - self.rings[index])
        self.rings[index] += written
        self.unwritten[index] -= written
        if not self.unwritten[index]:
            self.metrics.samplers[index]["env_steps"] += self.envs
        return written > 0

    def let_learner_go_on(self) -> bool:
        """One turn of the learner: it takes in what is there, and updates if it may."""
        rows = sum(self.rings)
        self.metrics.learner["rows_stored"] += rows
        self.metrics.learner["rows_consumed"] += rows
        self.rings = [0] * self.samplers
        before = self.updates
        allowed = self.gate.updates_allowed(self.launched)
        if allowed:
            count = self.updates_a_launch if allowed >= self.updates_a_launch else 1
            self.launched += count
            self.under_way.append(count)
        while len(self.under_way) > (LAUNCHES_AHEAD if allowed else 0):
            self.metrics.learner["updates"] += self.under_way.pop(0)
        return rows > 0 or allowed > 0 or self.updates > before

    def turn(self, who: int) -> bool:
        return self.let_learner_go_on() if who >= self.samplers else self.let_sampler_go_on(who)

    def check_bounds(self) -> None:
        learning, limits = self.config.learning, self.config.limits
        warmup = self.config.sampling.warmup_steps
        one_step_each = self.samplers * self.envs
        ahead = self.env_steps - warmup - SLACK_VECTOR_STEPS * one_step_each - one_step_each
        assert float(learning.min_updates_per_step) * ahead <= self.updates
        assert self.launched == self.updates + sum(self.under_way)
        if isinstance(learning.max_updates_per_step, float):
            # The last one was allowed with one less.
            above = learning.max_updates_per_step * (self.consumed - warmup) + 1
            assert self.launched == 0 or self.launched - 1 < above
        if self.consumed < warmup:
            assert self.launched == 0
        if limits.max_updates is not None:
            assert self.launched <= limits.max_updates
        if limits.max_env_steps is not None:
            assert self.env_steps < limits.max_env_steps + one_step_each


ratios = st.one_of(st.just(0.0), st.floats(1e-4, 1.0), st.floats(1.0, 50.0), st.integers(1, 8).map(float))


@settings(deadline=None, max_examples=300)
@given(
    low=ratios,
    above=st.one_of(st.none(), st.just(0.0), ratios),
    warmup=st.integers(1, 200),
    samplers=st.integers(1, 4),
    envs=st.integers(1, 16),
    ring_rows=st.integers(1, 64),
    max_env_steps=st.one_of(st.none(), st.integers(1, 400)),
    max_updates=st.one_of(st.none(), st.integers(1, 100)),
    updates_a_launch=st.sampled_from([1, 8]),
    turns=st.lists(st.integers(0, 7), max_size=150),
)
def test_no_interleaving_ends_in_everybody_waiting(
    low: float,
    above: float | None,
    warmup: int,
    samplers: int,
    envs: int,
    ring_rows: int,
    max_env_steps: int | None,
    max_updates: int | None,
    updates_a_launch: int,
    turns: list[int],
) -> None:
    high = None if above is None or low + above == 0 else low + above
    config = resolved(
        min_updates_per_step=low,
        max_updates_per_step=high,
        warmup_steps=warmup,
        samplers=samplers,
        envs_per_sampler=envs,
        max_env_steps=max_env_steps,
        max_updates=max_updates,
    )
    run = Run(config, ring_rows, updates_a_launch)
    for who in turns:
        run.turn(who)
        run.check_bounds()
    for _ in range(40):
        if run.is_over():
            break
        # In a round in which nobody gets anywhere nothing changes: it would be so for ever.
        went_on = [run.turn(who) for who in range(samplers + 1)]
        run.check_bounds()
        assert any(went_on) or run.is_over(), f"S={run.env_steps} consumed={run.consumed} U={run.updates}"


@settings(deadline=None, max_examples=30)
@given(
    low=st.floats(0.0, 8.0),
    above=st.one_of(st.none(), st.floats(0.01, 8.0)),
    warmup=st.integers(1, 100),
    envs=st.integers(1, 8),
    limit=st.sampled_from(["max_env_steps", "max_updates"]),
    count=st.integers(1, 150),
    updates_a_launch=st.sampled_from([1, 8]),
)
def test_every_limit_is_reached(
    low: float, above: float | None, warmup: int, envs: int, limit: str, count: int, updates_a_launch: int
) -> None:
    high = None if above is None else low + above
    fields: dict[str, Any] = {"min_updates_per_step": low, "max_updates_per_step": high, "warmup_steps": warmup}
    run = Run(resolved(envs_per_sampler=envs, **fields, **{limit: count}), 16, updates_a_launch)
    rounds = 0
    while not run.is_over():
        for who in range(SAMPLERS + 1):
            run.turn(who)
        rounds += 1
        assert rounds < 10_000, f"S={run.env_steps} consumed={run.consumed} U={run.updates}"
    if limit == "max_updates":
        assert run.updates == count
    else:
        assert count <= run.consumed < count + 2 * SAMPLERS * envs
