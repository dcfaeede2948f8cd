"""Every algorithm for continuous actions on environments with known values and best actions.

Each probe needs one more thing to be right.

They train as users do, in serial mode, so that each run repeats itself. Values are read from the critics of the last
checkpoint, actions from the last version of the policy. Each probe says which mistakes it shows; every one of them
moves a value by more than twice the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_runs
import torch
from making import CONTINUOUS
from numpy.typing import NDArray
from probe_envs import Later, Seen, Table, Target, Then, Visit, in_units

import spreeze
from spreeze.algorithms.critics import values
from spreeze.algorithms.networks import sample_action
from spreeze.learning.normalisation import Normaliser

Environment = Callable[[], Any]
GAMMA = 0.6
VALUE_TOLERANCE = 0.15
ACTION_TOLERANCE = 0.25  # half widths of the action space

SMALL: Mapping[str, Any] = {
    **small_runs.SMALL,
    "gamma": GAMMA,
}
FOR_VALUES: Mapping[str, Any] = {
    "warmup_steps": 200,
    "max_updates": 400,
    "hidden": (16, 16),
    "batch_size": 32,
    "learning_rate": 0.01,
}
# An actor needs critics that are ahead of it, and noise: else it may end in a corner of the tanh.
FOR_ACTIONS: Mapping[str, Any] = {
    "warmup_steps": 400,
    "max_updates": 600,
    "hidden": (32, 32),
    "batch_size": 64,
    "learning_rate": 0.003,
    "actor_delay": 2,
    "tau": 0.3,
}
NOISE: Mapping[str, Any] = {"exploration": 0.3, "exploration_high": 0.6}
# At a temperature of next to nothing, values are sums of rewards.
NO_ENTROPY: Mapping[str, Any] = {"initial_temperature": 1e-5, "target_entropy": -100.0}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "two-devices": {"actor_device": "cpu", "critic_device": "cpu"},
    # From 64 on products are rounded.
    "bfloat16": {"update_engine": "bfloat16", "hidden": (64, 64)},
    "two-bfloat16": {"actor_device": "cpu", "critic_device": "cpu", "update_engine": "bfloat16", "hidden": (64, 64)},
    "n-step": {"n_step": 3},
    "atoms": {"atoms": 81, "value_range": (-4.0, 4.0)},
    "layer-norm": {"layer_norm": True},
    "normalised": {"normalise_observations": True},
    "graph": {"device": "cuda", "update_engine": "graph"},
    "fused": {"device": "cuda", "update_engine": "fused", "hidden": (64, 64)},
}


@dataclass(frozen=True)
class Trained:
    """What a run has learnt."""

    algorithm: Any
    """As in the last checkpoint, on the CPU."""
    normalise: Normaliser | None
    act: Any
    """The policy without noise: actions in the environment's range."""

    def q(self, observations: Any, action: float) -> NDArray[np.float32]:
        """Return Q_i(s, a) of every critic, (critics, observations). action: as networks give it, in [-1, 1]."""
        at = torch.tensor(np.asarray(observations, np.float32))
        at = at if self.normalise is None else self.normalise(at)
        actions = torch.full((len(at), self.algorithm.spec.action_size), action)
        critic, distribution = self.algorithm.critic.frozen, self.algorithm.distribution
        return values(critic, at, actions, distribution=distribution).numpy()


def train_for_values(env: Environment, run: Path, algo: str, variant: str, **fields: Any) -> Trained:
    own = NO_ENTROPY if algo == "sac" else {}
    return train(env, run, algo, **{**FOR_VALUES, **own, **VARIANTS[variant], **fields})


def train_for_actions(env: Environment, run: Path, algo: str, variant: str, **fields: Any) -> Trained:
    own = {} if algo == "sac" else NOISE
    return train(env, run, algo, **{**FOR_ACTIONS, **own, **VARIANTS[variant], **fields})


def train(env: Environment, run: Path, algo: str, **fields: Any) -> Trained:
    spreeze.train(env, **{**SMALL, **fields}, algo=algo, run_dir=run)
    algorithm, normaliser = small_runs.last_state(env(), run)
    return Trained(algorithm, normaliser, small_runs.last_policy(run))


GPU = ("graph", "fused")


def cases(*variants: str) -> Any:
    """Every algorithm with the default settings, and one after the other with what else could fail here."""
    names = CONTINUOUS
    others = [(names[index % len(names)], variant) for index, variant in enumerate(variants)]
    return _parametrized([(names[0], "graph"), (names[0], "fused"), (names[1], "graph")], others)


def all_cases(*variants: str) -> Any:
    """Every algorithm on one device and two, in every compute mode; one after the other with what else could fail.

    In `make test`, the algorithms take turns with devices and modes too.
    """
    names = CONTINUOUS
    pairs = [(name, variant) for variant in ("two-devices", "bfloat16", "two-bfloat16") for name in names]
    in_turn = [pair for index, pair in enumerate(pairs) if index % len(names) == index // len(names)]
    others = [(names[index % len(names)], variant) for index, variant in enumerate(variants)]
    on_a_gpu = [(name, variant) for variant in GPU for name in names]
    return _parametrized(on_a_gpu, in_turn + others, [pair for pair in pairs if pair not in in_turn])


Pairs = Sequence[tuple[str, str]]


def _parametrized(on_a_gpu: Pairs, others: Pairs, in_full: Pairs = ()) -> Any:
    pairs = [*((name, "default") for name in CONTINUOUS), *others]
    return pytest.mark.parametrize(
        ("algo", "variant"),
        [
            *(pytest.param(*pair, id="-".join(pair)) for pair in pairs),
            *(pytest.param(*pair, id="-".join(pair), marks=pytest.mark.full) for pair in in_full),
            *(pytest.param(*pair, id="-".join(pair), marks=pytest.mark.gpu) for pair in on_a_gpu),
        ],
    )


def check_values(trained: Trained, observations: Any, expected: Sequence[float]) -> None:
    """The actions of these probes change nothing."""
    for action in (-1.0, 0.0, 1.0):
        for q in trained.q(observations, action):
            np.testing.assert_allclose(q, expected, rtol=0, atol=VALUE_TOLERANCE)


# --- values -------------------------------------------------------------------------------------------------------


@cases("atoms", "two-devices")
def test_a_step_that_ends_an_episode_is_worth_its_reward(algo: str, variant: str, tmp_path: Path) -> None:
    """Q = r = 1. Bootstrapping through termination gives r / (1 - gamma) = 2.5."""
    env = partial(Table, Visit(reward=1, leads_to=0, ends="terminated"))
    trained = train_for_values(env, tmp_path / "run", algo, variant)
    check_values(trained, np.eye(1), [1])


@cases("n-step", "atoms")
def test_a_constant_reward_is_worth_its_sum(algo: str, variant: str, tmp_path: Path) -> None:
    """Q = r / (1 - gamma) = 2.5, although each episode is cut off after four steps.

    No bootstrap at all gives 1; none at truncations, every fourth step, r / (1 - 3/4 gamma) = 1.8; no discount, no
    end.
    """
    env = partial(Table, Visit(reward=1, leads_to=0))
    trained = train_for_values(env, tmp_path / "run", algo, variant, max_episode_steps=4)
    check_values(trained, np.eye(1), [2.5])


@cases("layer-norm", "normalised")
def test_values_depend_on_what_is_observed(algo: str, variant: str, tmp_path: Path) -> None:
    """Q(o) = o. Rows whose parts do not belong together give 0 everywhere.

    Far from 0, as it is for `normalised`, an observation must be scaled to learn anything from it.
    """
    units = 100.0 if variant == "normalised" else 1.0
    trained = train_for_values(partial(Seen, units), tmp_path / "run", algo, variant)
    drawn = [-0.8, -0.4, 0, 0.4, 0.8]
    check_values(trained, [in_units(number, units) for number in drawn], drawn)


@cases("n-step", "atoms", "layer-norm")
def test_each_step_before_a_reward_discounts_it(algo: str, variant: str, tmp_path: Path) -> None:
    """Q = gamma^k, k steps before the reward; the same over n steps at once.

    No discount gives 1 everywhere; no bootstrap, or the observation in the place of the next one, 0 but at the end;
    gamma in the place of gamma^n, gamma in all other states.
    """
    steps = [Visit(0, 1), Visit(0, 2), Visit(0, 3), Visit(1, 3, "terminated")]
    trained = train_for_values(partial(Table, *steps), tmp_path / "run", algo, variant)
    check_values(trained, np.eye(4), [GAMMA**3, GAMMA**2, GAMMA, 1])


@all_cases("n-step", "atoms")
def test_truncated_episodes_bootstrap_and_terminated_ones_do_not(algo: str, variant: str, tmp_path: Path) -> None:
    """The same reward of 1 is worth 1 where the episode terminates, r / (1 - gamma) = 2.5 where it is truncated.

    The third state pays nothing and is truncated in the second one: it is worth gamma 2.5 = 1.5. With the first
    observation of the next episode instead of the last one of this, it would be gamma (1 + 2.5 + 1.5) / 3 = 1; with
    the observation in the place of the next, 0.
    """
    visits = [Visit(1, 0, "terminated"), Visit(1, 1, "truncated"), Visit(0, 1, "truncated")]
    trained = train_for_values(partial(Table, *visits), tmp_path / "run", algo, variant)
    check_values(trained, np.eye(3), [1, 2.5, 1.5])


# --- policies -----------------------------------------------------------------------------------------------------


@cases("two-devices", "atoms")
def test_the_best_action_is_found(algo: str, variant: str, tmp_path: Path) -> None:
    """An actor that climbs down ends at -1; one that does not learn stays near 0."""
    trained = train_for_actions(partial(Target, best=0.6), tmp_path / "run", algo, variant)
    assert trained.act(in_units(0, 1)) == pytest.approx(0.6, abs=ACTION_TOLERANCE)


@cases("normalised", "layer-norm")
def test_the_best_action_depends_on_what_is_observed(algo: str, variant: str, tmp_path: Path) -> None:
    """An actor that does not see its observation gives 0 everywhere."""
    units = 100.0 if variant == "normalised" else 1.0
    trained = train_for_actions(partial(Target, slope=-0.8, units=units), tmp_path / "run", algo, variant)
    for drawn in (-0.9, 0, 0.9):
        assert trained.act(in_units(drawn, units)) == pytest.approx(-0.8 * drawn, abs=ACTION_TOLERANCE)


@cases()
def test_actions_are_in_the_range_of_the_environment(algo: str, variant: str, tmp_path: Path) -> None:
    """-1 is the lower bound and 1 the upper one: Q(a) = 1 - (a - 0.5)^2, for the best action is 8 between 2 and 10.

    Without the centre of the range the best action is out of reach, and with exchanged bounds it is at a = -0.5. The
    environment refuses actions out of its bounds.
    """
    trained = train_for_actions(partial(Target, low=2, high=10, best=8), tmp_path / "run", algo, variant)
    assert trained.act(in_units(0, 1)) == pytest.approx(8, abs=4 * ACTION_TOLERANCE)
    for action in (-0.5, 0.5):
        for (q,) in trained.q([in_units(0, 1)], action):
            assert q == pytest.approx(1 - (action - 0.5) ** 2, abs=2 * VALUE_TOLERANCE)


@cases("bfloat16")
def test_each_component_of_an_action_is_learnt(algo: str, variant: str, tmp_path: Path) -> None:
    """Components that are exchanged leave their bounds, or end in another place."""
    low, high, best = np.array([[-1, 0, -10]]), np.array([[1, 4, -2]]), np.array([[0.5, 0.8, -3.6]])
    trained = train_for_actions(partial(Target, low, high, best), tmp_path / "run", algo, variant)
    distance = (trained.act(in_units(0, 1)) - best) / ((high - low) / 2)
    np.testing.assert_allclose(distance, 0, rtol=0, atol=ACTION_TOLERANCE)


@cases("atoms", "n-step", "normalised", "two-devices")
def test_an_action_that_is_paid_for_later_is_found(algo: str, variant: str, tmp_path: Path) -> None:
    """Q(start, a) = gamma (1 - 2 (a - 0.5)^2). Without bootstrap it is 0 for all actions; undiscounted, up to 1."""
    trained = train_for_actions(Later, tmp_path / "run", algo, variant)
    assert trained.act(np.array(Later.START, np.float32)) == pytest.approx(Later.BEST, abs=ACTION_TOLERANCE)
    for action in (-0.5, 0.5):
        for (q,) in trained.q([Later.START], action):
            assert q == pytest.approx(GAMMA * (1 - 2 * (action - Later.BEST) ** 2), abs=VALUE_TOLERANCE)


@all_cases("layer-norm", "normalised", "atoms")
def test_values_are_those_of_the_policy(algo: str, variant: str, tmp_path: Path) -> None:
    """Q(start, a) = gamma, of the best action at the second step.

    Targets of an actor that stands still, because it never arrives or its target never follows, give
    gamma (1 - 0.8^2) = 0.22 where it began at 0.
    """
    trained = train_for_actions(Then, tmp_path / "run", algo, variant)
    check_values(trained, [[0]], [GAMMA])
    assert trained.act(np.ones(1, np.float32)) == pytest.approx(Then.BEST, abs=ACTION_TOLERANCE)


@pytest.mark.parametrize("temperature", [0.5, 0.01])
def test_the_temperature_brings_the_entropy_where_it_should_be(temperature: float, tmp_path: Path) -> None:
    """A temperature that moves the other way leaves the entropy at its highest, log 2, or lets it fall below -3."""
    own = {"initial_temperature": temperature, "target_entropy": -0.5, "learning_rate": 0.01}
    trained = train_for_actions(partial(Target, best=0.2), tmp_path / "run", "sac", "default", **own)
    observation, noise = torch.zeros(1000, 1), torch.randn(1000, 1, generator=torch.Generator().manual_seed(0))
    _, log_pi = sample_action(trained.algorithm.actor.frozen, observation, noise)
    assert -float(log_pi.mean()) == pytest.approx(-0.5, abs=0.4)
