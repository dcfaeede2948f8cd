"""DQN, held against its equations written out, and its policy against its values."""

from __future__ import annotations

from typing import Any

import making
import numpy as np
import pytest
import torch
from torch import Tensor

from spreeze.algorithms.batch import Batch
from spreeze.algorithms.dqn import Dqn, dueling
from spreeze.channels.spaces import DiscreteActions
from spreeze.policy.action_format import describe_actions
from spreeze.policy.actor import make_actor

CHOICES, OBS_DIM, ROWS, GAMMA = (3, 2, 4), 5, 32, 0.9
ATOMS: dict[str, Any] = {"atoms": 21, "value_range": (-4.0, 4.0)}


def make(choices: tuple[int, ...] = CHOICES, **fields: Any) -> Any:
    own = {name: fields.pop(name) for name in ("double", "dueling") if name in fields}
    algorithm = making.make(Dqn, OBS_DIM, len(choices), choices=choices, own=own, tau=0.5, **fields)
    # Else it would not matter which of the two networks is asked, nor what it sees.
    generator = torch.Generator().manual_seed(9)
    for network in algorithm.networks():
        network.flat.copy_(torch.randn(network.flat.shape, generator=generator) * 0.5)
    return algorithm


def make_batch(choices: tuple[int, ...] = CHOICES, seed: int = 1) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return Batch(
        torch.randn(ROWS, OBS_DIM, generator=generator),
        torch.stack([torch.randint(n, (ROWS,), generator=generator) for n in choices], 1).int(),
        torch.randn(ROWS, generator=generator),
        torch.randn(ROWS, OBS_DIM, generator=generator),
        (torch.rand(ROWS, generator=generator) < 0.3).float(),
        torch.full((ROWS,), GAMMA),
    )


def by_component(values: Tensor) -> list[list[float]]:
    """The values of one row, component by component."""
    return [part.tolist() for part in values.split(CHOICES)]


def test_dueling_adds_to_a_value_what_each_choice_is_worth_more_than_the_mean() -> None:
    advantages, value = [1.0, 2.0, 6.0, -1.0, 1.0, 0.0, 0.0, 4.0, 4.0], 10.0
    q = dueling(torch.tensor([[*advantages, value]]), CHOICES)
    assert q.tolist() == [[8.0, 9.0, 13.0, 9.0, 11.0, 8.0, 8.0, 12.0, 12.0]]


@pytest.mark.parametrize("double", [True, False])
def test_target_is_the_mean_over_components_of_what_the_best_choice_is_worth(double: bool) -> None:
    dqn, batch = make(double=double), make_batch()
    chooses = dqn.values(dqn.outputs((dqn.critic if double else dqn.target_critic).frozen, batch.next_observation))
    worth = dqn.values(dqn.outputs(dqn.target_critic.frozen, batch.next_observation))
    for i, y in enumerate(dqn.target(batch)):
        pairs = zip(by_component(chooses[i]), by_component(worth[i]), strict=True)
        following = np.mean([judged[int(np.argmax(mine))] for mine, judged in pairs])
        follows = 0.0 if batch.terminated[i] else GAMMA * following
        assert float(y) == pytest.approx(float(batch.reward[i]) + follows, abs=1e-5)


def test_who_chooses_matters() -> None:
    batch = make_batch()
    assert not torch.allclose(make(double=True).target(batch), make(double=False).target(batch))


def test_loss_is_of_the_choices_that_were_made() -> None:
    dqn, batch = make(), make_batch()
    target = dqn.target(batch)
    values = dqn.outputs(dqn.critic.frozen, batch.observation)
    errors = []
    for i in range(ROWS):
        for branch, made in zip(by_component(values[i]), batch.action[i].tolist(), strict=True):
            errors.append(0.5 * (branch[made] - float(target[i])) ** 2)
    terms = dqn.update(batch)
    assert float(terms["critic_loss"].detach()) == pytest.approx(float(np.mean(errors)), rel=1e-4)


def test_the_target_network_follows() -> None:
    dqn = make()
    before = dqn.target_critic.flat.clone()
    dqn.update(make_batch())
    torch.testing.assert_close(dqn.target_critic.flat, (before + dqn.critic.flat) / 2)


def test_with_atoms_the_mean_of_the_target_is_that_without() -> None:
    dqn, batch = make(**ATOMS), make_batch()
    batch = batch._replace(reward=batch.reward * 0.1)  # far from the ends of the range
    outputs = dqn.outputs(dqn.target_critic.frozen, batch.next_observation)
    worth = dqn.values(outputs)
    judged = dqn.values(dqn.outputs(dqn.critic.frozen, batch.next_observation))
    for i, distribution in enumerate(dqn.target(batch)):
        pairs = zip(by_component(judged[i]), by_component(worth[i]), strict=True)
        following = np.mean([there[int(np.argmax(mine))] for mine, there in pairs])
        follows = 0.0 if batch.terminated[i] else GAMMA * following
        assert float(distribution.sum()) == pytest.approx(1.0, abs=1e-4)
        mean = float(distribution @ dqn.distribution.values)
        assert mean == pytest.approx(float(batch.reward[i]) + follows, abs=1e-3)


@pytest.mark.parametrize("fields", [{}, {"dueling": False}, ATOMS, {**ATOMS, "dueling": False}, {"hidden": ()}])
@pytest.mark.parametrize("choices", [(4,), CHOICES])
def test_the_policy_takes_what_the_network_values_most(choices: tuple[int, ...], fields: dict[str, Any]) -> None:
    dqn, batch = make(choices, **fields), make_batch(choices)
    space = DiscreteActions("multi_discrete", choices, (0,) * len(choices), (len(choices),), "int64")
    policy = {name: tensor.numpy() for name, tensor in dqn.policy().items()}
    actor = make_actor(policy, {"policy": "greedy", **describe_actions(space)[1]}, ROWS)
    values = dqn.values(dqn.outputs(dqn.critic.frozen, batch.observation))
    expected = torch.stack([part.argmax(-1) for part in values.split(choices, -1)], -1).numpy()
    assert len(np.unique(expected[:, 0])) > 1
    np.testing.assert_array_equal(actor.mean(batch.observation.numpy()), expected)
    # Exploration replaces some of the choices.
    noise = np.full((ROWS, len(choices)), -1, np.int32)
    noise[::2, 0] = 1
    explored = actor.sample(batch.observation.numpy(), noise)
    np.testing.assert_array_equal(explored[1::2], expected[1::2])
    assert (explored[::2, 0] == 1).all()
    assert explored.dtype == np.int32


@pytest.mark.parametrize("fields", [{}, ATOMS])
def test_values_of_a_constant_reward_are_learnt(fields: dict[str, Any]) -> None:
    dqn, batch = make(learning_rate=1e-2, **fields), make_batch()
    batch = batch._replace(reward=torch.ones(ROWS), terminated=torch.ones(ROWS))
    for _ in range(200):
        terms = dqn.update(batch)
    assert float(terms["q_mean"].mean()) == pytest.approx(1.0, abs=0.1)
    assert (terms["action_gap"] >= 0).all()
