"""Algorithms for discrete actions on environments with known values and best choices, as in `test_probes.py`."""

from __future__ import annotations

import json
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

import spreeze
from spreeze.algorithms.sac import Sac, entropy_of
from spreeze.algorithms.spec import AlgorithmSpec
from spreeze.config.own_settings import find_algorithm
from spreeze.learning.restore import restore
from spreeze.runs.checkpoint_format import newest_checkpoints

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
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "plain": {"double": False, "dueling": False},
    "n-step": {"n_step": 3, "exploration": 0.02, "exploration_high": 0.05},
    "atoms": {"atoms": 51, "value_range": (-1.0, 2.0)},
    "normalised": {"normalise_observations": True},
    "bfloat16": {"update_engine": "bfloat16", "hidden": (64, 64)},
}
# At a temperature of next to nothing, values are sums of rewards.
NO_ENTROPY: Mapping[str, Any] = {"initial_temperature": 1e-3, "target_entropy": -100.0}
OF_SAC: Mapping[str, Mapping[str, Any]] = {
    "default": NO_ENTROPY,
    "n-step": {**NO_ENTROPY, "n_step": 3},
    "atoms": {**NO_ENTROPY, **VARIANTS["atoms"]},
    "two-devices": {**NO_ENTROPY, "actor_device": "cpu", "critic_device": "cpu"},
    "layer-norm": {**NO_ENTROPY, "layer_norm": True},
}
ON_A_GPU: Mapping[str, Mapping[str, Any]] = {
    "graph": {"device": "cuda", "update_engine": "graph"},
    "fused": {"device": "cuda", "update_engine": "fused", "hidden": (64, 64)},
}
CASES = [
    *(("dqn", variant) for variant in VARIANTS),
    *(("sac", variant) for variant in OF_SAC),
    *(pytest.param(algo, variant, marks=pytest.mark.gpu) for algo in ("dqn", "sac") for variant in ON_A_GPU),
]
OF_EACH_KIND = {
    "discrete": (spaces.Discrete(4, start=2), 5, 3),
    "multi-discrete": (spaces.MultiDiscrete([3, 5, 2]), [2, 4, 0], [0, 1, 1]),
    "matrix": (spaces.MultiDiscrete([[2, 3], [4, 2]]), [[1, 2], [3, 0]], [[0, 0], [1, 1]]),
    "multi-binary": (spaces.MultiBinary(3), [1, 0, 1], [0, 0, 1]),
}


def train(env: Any, run: Path, algo: str, **fields: Any) -> Any:
    spreeze.train(env, **{**SMALL, **fields}, algo=algo, run_dir=run)
    return spreeze.load_policy(max((run / "weights").glob("policy-*")))


def learnt(env: Any, run: Path) -> Any:
    """Return the algorithm as it is in the last checkpoint."""
    config = spreeze.Config.from_flat(json.loads((run / "config.json").read_text()))
    kind, learning = find_algorithm(config.algo).for_actions("discrete"), config.learning
    algorithm: Any = kind(
        AlgorithmSpec(
            env.observation_space.shape[0],
            1,
            torch.device("cpu"),
            choices=(int(env.action_space.n),),
            settings=kind.Settings(**config.own),
            hidden=learning.hidden,
            atoms=learning.atoms,
            layer_norm=learning.layer_norm,
            value_range=learning.value_range,
        )
    )
    with torch.random.fork_rng(devices=[]):
        folder = run / "checkpoint"
        restore(folder, newest_checkpoints(folder)[0], algorithm, None, None, role=learning.learner_roles[0])
    return algorithm


def values_of(env: Any, run: Path, observations: Any) -> Any:
    """Return what each critic says that each choice is worth, (critics, observations, choices)."""
    algorithm, seen = learnt(env, run), torch.tensor(np.asarray(observations, np.float32))
    outputs = algorithm.outputs(algorithm.critic.frozen, seen)
    return algorithm.worth(outputs).numpy() if isinstance(algorithm, Sac) else algorithm.values(outputs)[None].numpy()


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


@pytest.mark.parametrize(("algo", "variant"), CASES)
def test_what_is_paid_later_is_worth_less_and_still_more(algo: str, variant: str, tmp_path: Path) -> None:
    """Q(cell, forward) = gamma^(3 - cell), Q(1, back) = 0.1, and from cell 2 back and forth: gamma^3.

    Without bootstrap, only the cells next to the ends are worth anything; without discount, all are worth 1.
    """
    run = tmp_path / "run"
    own = VARIANTS.get(variant, {}) if algo == "dqn" else OF_SAC.get(variant, NO_ENTROPY)
    policy = train(Corridor, run, algo, **{**own, **ON_A_GPU.get(variant, {})})
    cells = np.eye(Corridor.CELLS, dtype=np.float32)[1:4]
    assert [policy(cell) for cell in cells] == [8, 8, 8]
    assert all(type(policy(cell)) is int for cell in cells)
    if variant == "normalised":
        return  # the network sees other numbers
    forward = [GAMMA**2, GAMMA, 1.0]
    # Over several steps, choices after the first are the sampler's own: at the end as good as always forward.
    for values in values_of(Corridor(), run, cells):
        np.testing.assert_allclose(values[:, 1], forward, rtol=0, atol=TOLERANCE)
        if variant != "n-step":
            np.testing.assert_allclose(values[:2, 0], [0.1, GAMMA**3], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("temperature", [0.5, 0.01])
def test_the_temperature_brings_the_entropy_where_it_should_be(temperature: float, tmp_path: Path) -> None:
    """A temperature that moves the other way leaves it at its highest, log 4 = 1.39, or lets it fall to 0."""
    action_space, *wanted = OF_EACH_KIND["discrete"]
    own = {"initial_temperature": temperature, "target_entropy": 0.6, "learning_rate": 0.01, "max_updates": 800}
    run = tmp_path / "run"
    train(partial(Choice, action_space, *wanted), run, "sac", **own)
    algorithm = learnt(Choice(action_space, *wanted), run)
    entropies = entropy_of(algorithm.log_pi(algorithm.actor.frozen, torch.tensor([[1.0], [-1.0]])))
    assert float(entropies.mean()) == pytest.approx(0.6, abs=0.25)
