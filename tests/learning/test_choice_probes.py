"""Algorithms for discrete actions on environments with known values and best choices, as in `test_probes.py`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_runs
import torch
from choice_envs import Choice, Corridor
from gymnasium import spaces
from numpy.typing import NDArray
from probe_envs import Table, Visit

import spreeze
from spreeze.algorithms.sac import Sac, entropy_of

GAMMA, TOLERANCE = 0.7, 0.12
SMALL: Mapping[str, Any] = {
    **small_runs.SMALL,
    "gamma": GAMMA,
    "warmup_steps": 300,
    "max_updates": 500,
    "hidden": (32, 32),
    "batch_size": 64,
    "learning_rate": 0.005,
    "n_step": 1,
}
# At a temperature of next to nothing, values are sums of rewards.
OF_ALL: Mapping[str, Mapping[str, Any]] = {"sac": {"initial_temperature": 1e-3, "target_entropy": -100.0}}
BOTH: Mapping[str, Any] = {"actor_device": "cpu", "critic_device": "cpu"}
BFLOAT16: Mapping[str, Any] = {"update_engine": "bfloat16", "hidden": (64, 64)}  # from 64 on products are rounded
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "plain": {"double": False, "dueling": False},
    "n-step": {"n_step": 3, "exploration": 0.02, "exploration_high": 0.05},
    "atoms": {"atoms": 51, "value_range": (-1.0, 4.0)},
    "normalised": {"normalise_observations": True},
    "layer-norm": {"layer_norm": True},
    "bfloat16": BFLOAT16,
    "two-devices": BOTH,
    "two-bfloat16": {**BOTH, **BFLOAT16},
    "graph": {"device": "cuda", "update_engine": "graph"},
    "fused": {"device": "cuda", "update_engine": "fused", "hidden": (64, 64)},
}
ON_A_GPU = ("graph", "fused")
# DQN has no actor that could have a device of its own, and no layer normalisation.
ALL = [
    *(("dqn", variant) for variant in ("default", "plain", "n-step", "atoms", "normalised", "bfloat16", *ON_A_GPU)),
    *(("sac", variant) for variant in VARIANTS if variant != "plain"),
]
# In `make test`, two probes that need much of the same share what could fail in either.
DEFAULT = {("dqn", "default"), ("sac", "default")}
IN_CORRIDOR = {("dqn", "plain"), ("dqn", "n-step"), ("dqn", "normalised"), ("sac", "n-step"), ("sac", "layer-norm")}
IN_TABLE = {("dqn", "atoms"), ("dqn", "bfloat16")} | {
    ("sac", variant) for variant in ("atoms", "bfloat16", "two-devices", "two-bfloat16")
}


def cases(chosen: set[tuple[str, str]]) -> list[Any]:
    """Every algorithm in every compute mode; in `make test` the default ones and these."""

    def marks_of(pair: tuple[str, str]) -> list[Any]:
        if pair[1] in ON_A_GPU:
            return [pytest.mark.gpu]
        return [] if pair in DEFAULT | chosen else [pytest.mark.full]

    return [pytest.param(pair, id="-".join(pair), marks=marks_of(pair)) for pair in ALL]


OF_EACH_KIND = {
    "discrete": (spaces.Discrete(4, start=2), 5, 3),
    "multi-discrete": (spaces.MultiDiscrete([3, 5, 2]), [2, 4, 0], [0, 1, 1]),
    "matrix": (spaces.MultiDiscrete([[2, 3], [4, 2]]), [[1, 2], [3, 0]], [[0, 0], [1, 1]]),
    "multi-binary": (spaces.MultiBinary(3), [1, 0, 1], [0, 0, 1]),
}


def train(env: Any, run: Path, algo: str, variant: str = "default", **fields: Any) -> Any:
    """Return the policy."""
    own = {**OF_ALL.get(algo, {}), **VARIANTS[variant]}
    spreeze.train(env, **{**SMALL, **own, **fields}, algo=algo, run_dir=run)
    return small_runs.last_policy(run)


def values_of(env: Any, run: Path, observations: Any) -> Any:
    """Return what each critic says that each choice is worth, (critics, observations, choices)."""
    algorithm, normalise = small_runs.last_state(env, run)
    seen = torch.tensor(np.asarray(observations, np.float32))
    seen = seen if normalise is None else normalise(seen)
    outputs = algorithm.outputs(algorithm.critic.frozen, seen)
    return algorithm.worth(outputs).numpy() if isinstance(algorithm, Sac) else algorithm.values(outputs)[None].numpy()


# --- values -------------------------------------------------------------------------------------------------------

OVER, AGAIN, LAST, CUT, CUT_AT, CHOICE = 0, 1, 5, 6, 7, 8
START = 3  # of the environment's choices
TABLE = (
    Visit(1, OVER, "terminated"),
    Visit(1, AGAIN),
    *(Visit(0, 3), Visit(0, 4), Visit(0, LAST), Visit(1, LAST, "terminated")),
    Visit(1, CUT, "truncated"),
    Visit(0, CUT, "truncated"),
    Visit({START: 0.0, START + 1: 1.0, START + 2: -0.5}, CHOICE, "terminated"),
)
CHOICES = 3
Values = NDArray[np.float32]
"""Q_i(s, a), (critics, states, choices)."""


@pytest.fixture(scope="module", params=cases(IN_TABLE))
def q(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Values:
    """What one run has learnt of a table, which has a state for each of the probes below."""
    env = partial(Table, *TABLE, action_space=spaces.Discrete(CHOICES, start=START))
    run = tmp_path_factory.mktemp("table") / "run"
    train(env, run, *request.param, max_episode_steps=4)
    found: Values = values_of(env(), run, np.eye(len(TABLE)))
    assert found.shape == (2 if request.param[0] == "sac" else 1, len(TABLE), CHOICES)
    return found


def check(q: Values, expected: Any) -> None:
    for values in q:
        np.testing.assert_allclose(values, np.broadcast_to(expected, values.shape), rtol=0, atol=TOLERANCE)


def test_a_step_that_ends_an_episode_is_worth_its_reward(q: Values) -> None:
    """Q = r = 1. Bootstrapping through termination gives r / (1 - gamma) = 3.3."""
    check(q[:, OVER], 1)


def test_a_constant_reward_is_worth_its_sum(q: Values) -> None:
    """Q = r / (1 - gamma) = 3.3, although each episode is cut off after four steps.

    No bootstrap at all gives 1; none at truncations, every fourth step, r / (1 - 3/4 gamma) = 2.1; no discount, no
    end.
    """
    check(q[:, AGAIN], 1 / (1 - GAMMA))


def test_each_step_before_a_reward_discounts_it(q: Values) -> None:
    """Q = gamma^k, k steps before the reward.

    No discount gives 1 everywhere; no bootstrap, or the observation in the place of the next one, 0 but at the end.
    """
    check(q[:, LAST - 3 : LAST + 1], [[GAMMA**3], [GAMMA**2], [GAMMA], [1]])


def test_truncated_episodes_bootstrap_and_terminated_ones_do_not(q: Values) -> None:
    """The same reward of 1 is worth 1 where the episode terminates, r / (1 - gamma) = 3.3 where it is truncated.

    Who is truncated in another state without a reward has gamma 3.3 = 2.3. With the first observation of the next
    episode in its place, it would have gamma times the mean of all states, below 1; with the observation, 0.
    """
    check(q[:, [OVER, CUT, CUT_AT]], [[1], [1 / (1 - GAMMA)], [GAMMA / (1 - GAMMA)]])


def test_values_depend_on_the_choice(q: Values) -> None:
    """Q(a) = r(a). Choices that are exchanged, or rows whose parts do not belong together, give something else."""
    check(q[:, CHOICE], [0.0, 1.0, -0.5])


# --- policies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algo", ["dqn", "sac"])
@pytest.mark.parametrize("kind", OF_EACH_KIND)
def test_each_component_of_a_choice_depends_on_what_is_observed(algo: str, kind: str, tmp_path: Path) -> None:
    """A component that is exchanged with another, or a value that is off by one, is not what is wanted."""
    action_space, positive, negative = OF_EACH_KIND[kind]
    policy = train(partial(Choice, action_space, positive, negative), tmp_path / "run", algo)
    for seen, wanted in ((1.0, positive), (-1.0, negative)):
        action = policy(np.array([seen], np.float32))
        assert action_space.contains(action)
        np.testing.assert_array_equal(action, wanted)
    both = policy(np.array([[1.0], [-1.0]], np.float32))
    np.testing.assert_array_equal(both, [positive, negative])


@pytest.mark.parametrize("pair", cases(IN_CORRIDOR))
def test_what_is_paid_later_is_worth_less_and_still_more(pair: tuple[str, str], tmp_path: Path) -> None:
    """Q(cell, forward) = gamma^(3 - cell), Q(1, back) = 0.1, and from cell 2 back and forth: gamma^3.

    Without bootstrap, only the cells next to the ends are worth anything; without discount, all are worth 1.
    """
    run = tmp_path / "run"
    policy = train(Corridor, run, *pair)
    cells = np.eye(Corridor.CELLS, dtype=np.float32)[1:4]
    assert [policy(cell) for cell in cells] == [8, 8, 8]
    assert all(type(policy(cell)) is int for cell in cells)
    forward = [GAMMA**2, GAMMA, 1.0]
    # Over several steps, choices after the first are the sampler's own: at the end as good as always forward.
    for values in values_of(Corridor(), run, cells):
        np.testing.assert_allclose(values[:, 1], forward, rtol=0, atol=TOLERANCE)
        if pair[1] != "n-step":
            np.testing.assert_allclose(values[:2, 0], [0.1, GAMMA**3], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("temperature", [0.5, 0.01])
def test_the_temperature_brings_the_entropy_where_it_should_be(temperature: float, tmp_path: Path) -> None:
    """A temperature that moves the other way leaves it at its highest, log 4 = 1.39, or lets it fall to 0."""
    action_space, *wanted = OF_EACH_KIND["discrete"]
    own = {"initial_temperature": temperature, "target_entropy": 0.6, "learning_rate": 0.01, "max_updates": 800}
    run = tmp_path / "run"
    train(partial(Choice, action_space, *wanted), run, "sac", **own)
    algorithm, _ = small_runs.last_state(Choice(action_space, *wanted), run)
    entropies = entropy_of(algorithm.log_pi(algorithm.actor.frozen, torch.tensor([[1.0], [-1.0]])))
    assert float(entropies.mean()) == pytest.approx(0.6, abs=0.25)
