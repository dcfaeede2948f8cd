"""TD3 and DDPG, held against their equations written out, and the schedule that all algorithms share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import making
import pytest
import torch
from torch import Tensor

from spreeze.algorithms.actor_critic import ActorCritic
from spreeze.algorithms.batch import Batch
from spreeze.algorithms.critics import bootstrap, critic_loss
from spreeze.algorithms.ddpg import Ddpg, actor_loss
from spreeze.algorithms.networks import deterministic_action, twin_q
from spreeze.algorithms.sac import Sac
from spreeze.algorithms.td3 import Td3, smoothed_action

OBS_DIM, ACT_DIM, HIDDEN, BATCH = 5, 2, (16, 16), 32
KINDS: tuple[type[ActorCritic], ...] = (Sac, Td3, Ddpg)


def make(kind: type[ActorCritic], **shared: Any) -> Any:
    return making.make(kind, OBS_DIM, ACT_DIM, HIDDEN, **{"tau": 0.1, **shared})


def make_batch(seed: int = 1) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return Batch(
        torch.randn(BATCH, OBS_DIM, generator=generator),
        torch.rand(BATCH, ACT_DIM, generator=generator) * 2 - 1,
        torch.randn(BATCH, generator=generator),
        torch.randn(BATCH, OBS_DIM, generator=generator),
        (torch.rand(BATCH, generator=generator) < 0.3).float(),
        torch.full((BATCH,), 0.99),
    )


def copies(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.clone() for tensor in tensors]


# --- equations ---------------------------------------------------------------------------------------------------


def test_target_takes_the_smaller_value_and_nothing_after_the_end() -> None:
    batch, q = make_batch(), torch.stack([torch.arange(BATCH) * 1.0, torch.full((BATCH,), 10.0)])
    for i, y in enumerate(bootstrap(batch, q)):
        follows = 0.0 if batch.terminated[i] else 0.99 * min(float(i), 10.0)
        assert float(y) == pytest.approx(float(batch.reward[i]) + follows, rel=1e-5)


def test_target_takes_a_bonus_for_what_follows() -> None:
    sac, batch = make(Sac), make_batch()
    action, bonus = batch.action * 0.5, torch.arange(BATCH) * 1.0
    q = twin_q(sac.target_critic.frozen, batch.next_observation, action).amin(0)
    for i, y in enumerate(sac.critic_target(batch, action, bonus)):
        follows = 0.0 if batch.terminated[i] else 0.99 * (float(q[i]) + float(i))
        assert float(y) == pytest.approx(float(batch.reward[i]) + follows, rel=1e-4, abs=1e-5)


def test_smoothing_noise_is_clipped_and_so_is_the_action() -> None:
    td3, batch = make(Td3), make_batch()
    plain = deterministic_action(td3.actor.frozen, batch.observation)
    noise = torch.full((BATCH, ACT_DIM), 100.0)
    up = smoothed_action(td3.actor.frozen, batch.observation, noise, 0.2, 0.5)
    torch.testing.assert_close(up, (plain + 0.5).clamp(-1, 1))
    slightly = smoothed_action(td3.actor.frozen, batch.observation, noise / 100, 0.2, 0.5)
    torch.testing.assert_close(slightly, (plain + 0.2).clamp(-1, 1))


def test_the_actor_climbs_on_the_first_critic() -> None:
    td3, batch = make(Td3), make_batch()
    action = deterministic_action(td3.actor.frozen, batch.observation)
    expected = -twin_q(td3.critic.frozen, batch.observation, action)[0].mean()
    torch.testing.assert_close(actor_loss(td3.actor.frozen, td3.critic.frozen, batch.observation), expected)


def test_the_critics_loss_is_half_the_squared_error_of_each() -> None:
    td3, batch = make(Td3), make_batch()
    target = torch.ones(BATCH)
    loss, q = critic_loss(td3.critic.frozen, batch, target)
    assert q.shape == (2, BATCH)
    torch.testing.assert_close(loss, 0.5 * ((q - 1) ** 2).mean(1).sum())


def test_critics_of_td3_learn_from_the_target_actor_with_noise_and_those_of_ddpg_without() -> None:
    batch, noise = make_batch(), torch.ones(BATCH, ACT_DIM)
    td3, ddpg = make(Td3), make(Ddpg)
    for algorithm in (td3, ddpg):
        algorithm.target_actor.flat.mul_(0.5)  # not the actor itself
    expected = smoothed_action(td3.target_actor.frozen, batch.next_observation, noise, 0.2, 0.5)
    torch.testing.assert_close(td3.next_action(batch.next_observation, noise), expected)
    expected = deterministic_action(ddpg.target_actor.frozen, batch.next_observation)
    torch.testing.assert_close(ddpg.next_action(batch.next_observation, noise), expected)
    assert [len(next(iter(a.critic.frozen.values()))) for a in (td3, ddpg)] == [2, 1]


@pytest.mark.parametrize("kind", [Td3, Ddpg])
def test_targets_follow_slowly(kind: type[ActorCritic]) -> None:
    algorithm = make(kind)
    actor, target_actor, target_critic = copies(
        [algorithm.actor.flat, algorithm.target_actor.flat, algorithm.target_critic.flat]
    )
    algorithm.update(make_batch())
    torch.testing.assert_close(algorithm.target_critic.flat, target_critic.lerp(algorithm.critic.flat, 0.1))
    assert torch.equal(algorithm.target_actor.flat, target_actor)
    moved = algorithm.actor.flat.clone()
    assert not torch.equal(moved, actor)
    algorithm.update(make_batch(2))
    torch.testing.assert_close(algorithm.target_actor.flat, target_actor.lerp(moved, 0.1))


# --- what all algorithms share -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_delayed_actor_moves_at_every_so_many_updates(kind: type[ActorCritic]) -> None:
    algorithm = make(kind, actor_delay=3)
    for number in range(1, 10):
        actor, critic, target = copies([algorithm.actor.flat, algorithm.critic.flat, algorithm.target_critic.flat])
        losses = making.update(algorithm, make_batch(number))
        is_actors_turn = number % 3 == 0
        assert torch.equal(algorithm.actor.flat, actor) != is_actors_turn
        assert not torch.equal(algorithm.critic.flat, critic)
        assert torch.equal(algorithm.target_critic.flat, target) == (kind is not Sac and not is_actors_turn)
        if number >= 3:  # reports continue between its steps
            assert float(losses["actor_loss"]) != 0.0


@pytest.mark.parametrize("delay", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_two_sides_that_exchange_after_each_step_are_the_whole(kind: type[ActorCritic], delay: int) -> None:
    whole = make(kind, actor_delay=delay)
    critic = make(kind, actor_delay=delay, role="critic")
    actor = make(kind, actor_delay=delay, role="actor")
    for number in range(6):
        batch = make_batch(number)
        whole.update(batch, torch.Generator().manual_seed(number))
        critic.update(batch, torch.Generator().manual_seed(number))
        for mine, theirs in zip(actor.others(), critic.own(), strict=True):
            mine.copy_(theirs)
        actor.update(batch, torch.Generator().manual_seed(number))
        for mine, theirs in zip(critic.others(), actor.own(), strict=True):
            mine.copy_(theirs)
    torch.testing.assert_close(critic.critic.flat, whole.critic.flat)
    torch.testing.assert_close(critic.target_critic.flat, whole.target_critic.flat)
    torch.testing.assert_close(actor.actor.flat, whole.actor.flat)


@pytest.mark.parametrize("kind", KINDS)
def test_a_blank_copy_has_the_same_shapes_and_settings(kind: type[ActorCritic]) -> None:
    algorithm = make(kind, actor_delay=2, layer_norm=True)
    copy = algorithm.blank_copy(algorithm.operations)
    assert [tensor.shape for tensor in copy.state()] == [tensor.shape for tensor in algorithm.state()]
    assert copy.spec == replace(algorithm.spec, seed=0)


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_update_reports_is_what_is_declared(kind: type[ActorCritic]) -> None:
    algorithm = make(kind)
    terms = algorithm.update(make_batch())
    assert terms.keys() == {figure.name for figure in kind.figures}
    figures = algorithm.report(terms)
    assert figures.shape == (len(kind.figures),)
    assert figures.isfinite().all()


def test_normalised_layers_have_mean_0_and_variance_1_before_their_scale() -> None:
    plain, normed = make(Ddpg), make(Ddpg, layer_norm=True)
    batch = make_batch()
    critic = normed.critic.frozen
    assert critic["critic.0.scale"].shape == (1, 1, HIDDEN[0])
    x = torch.cat([batch.observation, batch.action], -1)
    for i in range(2):
        x = x @ critic[f"critic.{i}.weight"][0] + critic[f"critic.{i}.bias"][0]
        x = ((x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()).relu()
    expected = x @ critic["critic.2.weight"][0] + critic["critic.2.bias"][0]
    torch.testing.assert_close(twin_q(critic, batch.observation, batch.action)[0], expected[:, 0])
    # Scale and shift are learned.
    before = critic["critic.0.scale"].clone()
    normed.update(batch)
    assert not torch.equal(critic["critic.0.scale"], before)
    assert not any(name.endswith("scale") for name in plain.critic.frozen)
