"""SAC for discrete actions, held against its equations written out, and its policy against its probabilities."""

from __future__ import annotations

import math
from typing import Any

import making
import numpy as np
import pytest
import torch

from spreeze.algorithms.batch import Batch
from spreeze.algorithms.sac import DiscreteSac, Sac
from spreeze.channels.spaces import DiscreteActions
from spreeze.policy.action_format import describe_actions
from spreeze.policy.actor import make_actor

CHOICES, OBS_DIM, ROWS, GAMMA, ALPHA = (3, 2), 4, 16, 0.9, 0.3
COMPONENTS = (slice(0, 3), slice(3, 5))
ATOMS: dict[str, Any] = {"atoms": 41, "value_range": (-6.0, 6.0)}


def make(**fields: Any) -> Any:
    own = {"initial_temperature": ALPHA, **fields.pop("own", {})}
    sac = making.make(DiscreteSac, OBS_DIM, len(CHOICES), choices=CHOICES, own=own, **fields)
    # Else probabilities are all alike, and both critics' targets what they are themselves.
    generator = torch.Generator().manual_seed(3)
    for network in (sac.actor, sac.critic, sac.target_critic):
        network.flat.copy_(torch.randn(network.flat.shape, generator=generator) * 0.5)
    return sac


def make_batch() -> Batch:
    generator = torch.Generator().manual_seed(1)
    return Batch(
        torch.randn(ROWS, OBS_DIM, generator=generator),
        torch.stack([torch.randint(n, (ROWS,), generator=generator) for n in CHOICES], 1).int(),
        torch.randn(ROWS, generator=generator) * 0.1,
        torch.randn(ROWS, OBS_DIM, generator=generator),
        (torch.rand(ROWS, generator=generator) < 0.3).float(),
        torch.full((ROWS,), GAMMA),
    )


def target_by_hand(sac: Any, batch: Batch, i: int) -> float:
    log_pi = sac.log_pi(sac.actor.frozen, batch.next_observation)[i].tolist()
    worth = sac.worth(sac.outputs(sac.target_critic.frozen, batch.next_observation))[:, i].tolist()
    of_critics = []
    for values in worth:
        expected = [sum(math.exp(log_pi[j]) * values[j] for j in range(*part.indices(5))) for part in COMPONENTS]
        of_critics.append(sum(expected) / len(expected))
    entropy = -sum(math.exp(log) * log for log in log_pi)
    follows = GAMMA * (min(of_critics) + ALPHA * entropy)
    return float(batch.reward[i]) + (0.0 if batch.terminated[i] else follows)


def test_target_is_what_all_choices_are_worth_by_their_probabilities_and_their_entropy() -> None:
    sac, batch = make(), make_batch()
    for i, y in enumerate(sac.soft_target(batch)):
        assert float(y) == pytest.approx(target_by_hand(sac, batch, i), abs=1e-5)


def test_with_atoms_the_mean_of_the_target_is_that_without() -> None:
    sac, batch = make(**ATOMS), make_batch()
    for i, distribution in enumerate(sac.soft_target(batch)):
        assert float(distribution.sum()) == pytest.approx(1.0, abs=1e-4)
        mean = float(distribution @ sac.distribution.values)
        assert mean == pytest.approx(target_by_hand(sac, batch, i), abs=2e-3)


def test_losses_are_those_of_the_equations() -> None:
    sac, batch = make(), make_batch()
    target = sac.soft_target(batch)
    values = sac.outputs(sac.critic.frozen, batch.observation)
    made = batch.action + torch.tensor([0, 3])
    errors = [
        0.5 * (float(values[critic, i, j]) - float(target[i])) ** 2
        for critic in range(2)
        for i in range(ROWS)
        for j in made[i].tolist()
    ]
    terms = sac.update_critic(batch, torch.empty(0))
    assert float(terms["critic_loss"].detach()) == pytest.approx(2 * float(np.mean(errors)), rel=1e-4)
    log_pi = sac.log_pi(sac.actor.frozen, batch.observation)
    q = sac.outputs(sac.critic.frozen, batch.observation).amin(0)
    expected = float((log_pi.exp() * (ALPHA * log_pi - q)).sum() / ROWS)
    terms = sac.update_actor(batch, torch.empty(0))
    assert float(terms["actor_loss"].detach()) == pytest.approx(expected, rel=1e-4)
    assert float(terms["entropy"]) == pytest.approx(float(-(log_pi.exp() * log_pi).sum() / ROWS), rel=1e-4)


def test_the_actor_comes_to_prefer_what_is_worth_more_as_far_as_the_temperature_says() -> None:
    """Of fixed values the best policy is softmax(Q / alpha), for each component."""
    sac, batch = make(learning_rate=0.02, own={"target_entropy": 0.0}), make_batch()
    sac.optimisers["temperature"].learning_rate = 0.0
    for _ in range(400):
        sac.update_actor(batch, torch.empty(0))
    q = sac.outputs(sac.critic.frozen, batch.observation).amin(0)
    pi = sac.log_pi(sac.actor.frozen, batch.observation).exp()
    for part in COMPONENTS:
        torch.testing.assert_close(pi[:, part], (q[:, part] / ALPHA).softmax(-1), atol=0.06, rtol=0)


def test_samplers_draw_from_the_probabilities_of_the_network() -> None:
    sac, batch = make(), make_batch()
    space = DiscreteActions("multi_discrete", CHOICES, (0, 0), (2,), "int64")
    policy = {name: tensor.numpy() for name, tensor in sac.policy().items()}
    actor = make_actor(policy, {"policy": "categorical", **describe_actions(space)[1]}, ROWS)
    seen, pi = batch.observation.numpy(), sac.log_pi(sac.actor.frozen, batch.observation).exp().numpy()
    most = np.stack([pi[:, part].argmax(-1) for part in COMPONENTS], 1)
    np.testing.assert_array_equal(actor.mean(seen), most)
    rng = np.random.default_rng(0)
    drawn = np.stack([actor.sample(seen, rng.gumbel(size=(ROWS, 5)).astype(np.float32)) for _ in range(3000)])
    for component, part in enumerate(COMPONENTS):
        shares = [(drawn[:, :, component] == value).mean(0) for value in range(CHOICES[component])]
        np.testing.assert_allclose(np.stack(shares, 1), pi[:, part], rtol=0, atol=0.05)


def test_the_target_entropy_follows_from_the_number_of_choices() -> None:
    assert make().target_entropy == pytest.approx(0.5 * (math.log(3) + math.log(2)))
    assert make(own={"target_entropy": 0.1}).target_entropy == 0.1


def test_an_algorithm_that_inherits_from_sac_keeps_its_own_class() -> None:
    own = type("Own", (Sac,), {})
    assert [Sac.for_actions(kind) for kind in ("continuous", "discrete")] == [Sac, DiscreteSac]
    assert own.for_actions("discrete") is own
    assert "discrete" not in own.action_kinds
