from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from making import make, update
from numpy.typing import NDArray
from torch import Tensor

from spreeze.algorithms.batch import Batch
from spreeze.algorithms.critics import critic_loss
from spreeze.algorithms.kernels.operations import LOG_STD_MAX, LOG_STD_MIN, PLAIN
from spreeze.algorithms.networks import Tensors
from spreeze.algorithms.sac import Sac, actor_loss, soft_target, temperature_loss
from spreeze.algorithms.spec import LearnerRole

CPU = torch.device("cpu")
torch.set_num_threads(1)  # at these sizes a second thread only waits for the first
OBS_DIM, ACT_DIM, BATCH = 4, 2, 48
Doubles = NDArray[np.float64]


def make_sac(**changes: float) -> Sac:
    own = {name: changes.pop(name) for name in ("initial_temperature", "target_entropy") if name in changes}
    sac: Sac = make(Sac, OBS_DIM, ACT_DIM, own=own, **{"learning_rate": 1e-2, "tau": 0.1, **changes})
    return sac


def make_batch(seed: int = 1, terminated: float | None = None) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    ends = (torch.rand(BATCH, generator=generator) < 0.3).float()
    return Batch(
        torch.randn(BATCH, OBS_DIM, generator=generator),
        torch.rand(BATCH, ACT_DIM, generator=generator) * 2 - 1,
        torch.randn(BATCH, generator=generator) * 3,
        torch.randn(BATCH, OBS_DIM, generator=generator),
        ends if terminated is None else torch.full((BATCH,), terminated),
        torch.rand(BATCH, generator=generator) * 0.1 + 0.9,
    )


def make_noise(seed: int = 2) -> Tensor:
    return torch.randn(BATCH, ACT_DIM, generator=torch.Generator().manual_seed(seed))


# --- the same by hand, in float64 -------------------------------------------------------------------------------


def double(tensor: Tensor) -> Doubles:
    return tensor.detach().numpy().astype(np.float64)


def network(parameters: Tensors, name: str, x: Doubles) -> Doubles:
    count = len(parameters) // 2
    for i in range(count):
        x = x @ double(parameters[f"{name}.{i}.weight"]) + double(parameters[f"{name}.{i}.bias"])
        x = np.maximum(x, 0.0) if i < count - 1 else x
    return x


def q_by_hand(critic: Tensors, observation: Doubles, action: Doubles) -> Doubles:
    return network(critic, "critic", np.concatenate([observation, action], axis=-1))[..., 0]


def policy_by_hand(actor: Tensors, observation: Doubles, noise: Doubles) -> tuple[Doubles, Doubles]:
    output = network(actor, "actor", observation)
    mean, log_std = output[:, :ACT_DIM], output[:, ACT_DIM:].clip(LOG_STD_MIN, LOG_STD_MAX)
    u = mean + np.exp(log_std) * noise
    density = np.exp(-0.5 * ((u - mean) / np.exp(log_std)) ** 2) / (np.exp(log_std) * math.sqrt(2 * math.pi))
    return np.tanh(u), np.log(density / (1 - np.tanh(u) ** 2)).sum(-1)


def target_by_hand(sac: Sac, batch: Batch, noise: Tensor) -> Doubles:
    alpha = math.exp(sac.temperature.flat.item())
    following = double(batch.next_observation)
    action, log_pi = policy_by_hand(sac.actor.frozen, following, double(noise))
    value = q_by_hand(sac.target_critic.frozen, following, action).min(0) - alpha * log_pi
    target: Doubles = double(batch.reward) + double(batch.discount) * (1 - double(batch.terminated)) * value
    return target


# --- losses -----------------------------------------------------------------------------------------------------


def separate_target(sac: Sac) -> Sac:
    """Give the target critics parameters of their own, so that a mix-up of the two would show."""
    sac.target_critic.flat.mul_(1.5).add_(0.01)
    return sac


def test_target_is_that_of_the_paper() -> None:
    sac, batch, noise = separate_target(make_sac()), make_batch(), make_noise()
    y = soft_target(sac.target_critic.frozen, sac.actor.frozen, sac.temperature.flat, batch, noise)
    assert y.shape == (BATCH,)
    np.testing.assert_allclose(y, target_by_hand(sac, batch, noise), rtol=1e-5, atol=1e-5)


def test_target_after_a_termination_is_the_reward_alone() -> None:
    sac, batch, noise = make_sac(), make_batch(terminated=1.0), make_noise()
    y = soft_target(sac.target_critic.frozen, sac.actor.frozen, sac.temperature.flat, batch, noise)
    assert torch.equal(y, batch.reward)


def test_target_after_a_truncation_bootstraps_from_the_last_observation() -> None:
    # A truncated row is one with terminated = 0 whose next observation is the episode's last.
    sac, batch, noise = make_sac(), make_batch(terminated=0.0), make_noise()
    y = soft_target(sac.target_critic.frozen, sac.actor.frozen, sac.temperature.flat, batch, noise)
    np.testing.assert_allclose(y, target_by_hand(sac, batch, noise), rtol=1e-5, atol=1e-5)
    assert not torch.isclose(y, batch.reward).any()
    elsewhere = batch._replace(next_observation=batch.next_observation + 1)
    moved = soft_target(sac.target_critic.frozen, sac.actor.frozen, sac.temperature.flat, elsewhere, noise)
    assert not torch.isclose(y, moved).any()


def test_target_takes_the_smaller_of_the_twins() -> None:
    sac, batch, noise = make_sac(), make_batch(terminated=0.0), make_noise()
    last = max(name for name in sac.target_critic.frozen if name.endswith("bias"))
    ordinary = soft_target(sac.target_critic.frozen, sac.actor.frozen, sac.temperature.flat, batch, noise)
    sac.target_critic.frozen[last][0] += 1000.0
    one_high = soft_target(sac.target_critic.frozen, sac.actor.frozen, sac.temperature.flat, batch, noise)
    sac.target_critic.frozen[last][1] += 1000.0
    both_high = soft_target(sac.target_critic.frozen, sac.actor.frozen, sac.temperature.flat, batch, noise)
    assert (one_high - ordinary).abs().max() < 100
    assert (both_high - ordinary).min() > 800


def test_critic_loss_is_half_the_squared_error_of_both() -> None:
    sac, batch = make_sac(), make_batch()
    y = torch.randn(BATCH, generator=torch.Generator().manual_seed(5))
    loss, all_q = critic_loss(sac.critic.frozen, batch, y)
    q = q_by_hand(sac.critic.frozen, double(batch.observation), double(batch.action))
    assert q.shape == (2, BATCH)
    expected = 0.5 * ((q[0] - double(y)) ** 2).mean() + 0.5 * ((q[1] - double(y)) ** 2).mean()
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(all_q, q, rtol=1e-4, atol=1e-6)


def test_actor_loss_is_that_of_the_paper() -> None:
    sac, batch, noise = make_sac(), make_batch(), make_noise()
    loss, entropy = actor_loss(sac.actor.frozen, sac.critic.frozen, sac.temperature.flat, batch.observation, noise)
    observation = double(batch.observation)
    action, expected_log_pi = policy_by_hand(sac.actor.frozen, observation, double(noise))
    q = q_by_hand(sac.critic.frozen, observation, action).min(0)
    expected = (math.exp(sac.temperature.flat.item()) * expected_log_pi - q).mean()
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert entropy.item() == pytest.approx(-expected_log_pi.mean(), rel=1e-5, abs=1e-5)
    assert not entropy.requires_grad


def test_temperature_loss_is_that_of_the_paper() -> None:
    log_alpha = torch.tensor([0.7])
    entropy = -torch.tensor([1.0, -2.0, 4.0]).mean()
    assert temperature_loss(log_alpha, entropy, -2.0).item() == pytest.approx(-0.7 * ((-1 - 4 + 2) / 3), rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_losses_in_float32_are_those_of_float64(seed: int) -> None:
    sac, batch, noise = separate_target(make_sac(seed=seed)), make_batch(seed), make_noise(seed + 100)
    y = soft_target(sac.target_critic.frozen, sac.actor.frozen, sac.temperature.flat, batch, noise)
    loss_q, _ = critic_loss(sac.critic.frozen, batch, y)
    q = q_by_hand(sac.critic.frozen, double(batch.observation), double(batch.action))
    expected = 0.5 * ((q - target_by_hand(sac, batch, noise)) ** 2).mean(-1).sum()
    assert loss_q.item() == pytest.approx(expected, rel=1e-5)


# --- gradients --------------------------------------------------------------------------------------------------


def gradient_of(parameters: Tensor) -> Tensor:
    assert parameters.grad is not None
    return parameters.grad


def test_actor_loss_leaves_no_gradient_for_the_critics() -> None:
    sac, batch, noise = make_sac(), make_batch(), make_noise()
    loss, _ = actor_loss(
        sac.actor.trainable,
        sac.critic.frozen,
        sac.temperature.frozen["log_temperature"],
        batch.observation,
        noise,
    )
    loss.backward()  # type: ignore[no-untyped-call]
    assert gradient_of(sac.actor.flat).abs().sum() > 0
    assert gradient_of(sac.critic.flat).abs().sum() == 0
    assert gradient_of(sac.temperature.flat).abs().sum() == 0


def test_critic_loss_leaves_no_gradient_for_actor_and_target() -> None:
    sac, batch, noise = make_sac(), make_batch(), make_noise()
    y = soft_target(sac.target_critic.frozen, sac.actor.frozen, sac.temperature.flat, batch, noise)
    critic_loss(sac.critic.trainable, batch, y)[0].backward()  # type: ignore[no-untyped-call]
    assert gradient_of(sac.critic.flat).abs().sum() > 0
    for other in (sac.actor, sac.target_critic, sac.temperature):
        assert gradient_of(other.flat).abs().sum() == 0


def test_gradient_of_the_critics_is_that_of_small_differences() -> None:
    sac, batch = make_sac(), make_batch()
    y = torch.randn(BATCH, generator=torch.Generator().manual_seed(5))
    critic_loss(sac.critic.trainable, batch, y)[0].backward()  # type: ignore[no-untyped-call]
    gradient = double(gradient_of(sac.critic.flat))
    parameters = {name: tensor.double() for name, tensor in sac.critic.frozen.items()}
    in_double = Batch(*(part.double() for part in batch))
    name, step = "critic.1.weight", 1e-6
    offset = sum(parameters[f"critic.0.{kind}"].numel() for kind in ("weight", "bias"))
    for index in range(0, parameters[name].numel(), 37):
        changes = []
        for sign in (1, -1):
            changed = parameters[name].clone()
            changed.view(-1)[index] += sign * step
            changes.append(critic_loss({**parameters, name: changed}, in_double, y.double())[0].item())
        numeric = (changes[0] - changes[1]) / (2 * step)
        assert gradient[offset + index] == pytest.approx(numeric, rel=1e-3, abs=1e-6)


# --- one update -------------------------------------------------------------------------------------------------


def update_once(sac: Sac, batch: Batch, seed: int = 3) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    return update(sac, batch)


def test_update_moves_everything_that_learns() -> None:
    sac, batch = make_sac(), make_batch()
    before = [part.flat.clone() for part in (sac.actor, sac.critic, sac.target_critic, sac.temperature)]
    update_once(sac, batch)
    for part, old in zip((sac.actor, sac.critic, sac.target_critic, sac.temperature), before, strict=True):
        assert not torch.equal(part.flat, old)
        assert part.flat.isfinite().all()
        # The first step of Adam is one learning rate at most, for each parameter.
        assert (part.flat - old).abs().max() <= 1.001e-2


def test_update_reports_the_losses_it_descended() -> None:
    sac, twin, batch = separate_target(make_sac()), separate_target(make_sac()), make_batch()
    losses = update_once(sac, batch)
    torch.manual_seed(3)
    noise = torch.randn(2, BATCH, ACT_DIM)
    y = target_by_hand(twin, batch, noise[0])
    q = q_by_hand(twin.critic.frozen, double(batch.observation), double(batch.action))
    assert losses["critic_loss"].item() == pytest.approx(0.5 * ((q - y) ** 2).mean(-1).sum(), rel=1e-5)
    assert losses["q_mean"].item() == pytest.approx(q.mean(), rel=1e-4, abs=1e-6)
    # The actor's loss sees the critics after their step.
    _, log_pi = policy_by_hand(twin.actor.frozen, double(batch.observation), double(noise[1]))
    action, _ = policy_by_hand(twin.actor.frozen, double(batch.observation), double(noise[1]))
    q_after = q_by_hand(sac.critic.frozen, double(batch.observation), action).min(0)
    assert losses["actor_loss"].item() == pytest.approx((0.2 * log_pi - q_after).mean(), rel=1e-5)
    assert losses["entropy"].item() == pytest.approx(-log_pi.mean(), rel=1e-5)
    assert losses["temperature_loss"].item() == pytest.approx(-math.log(0.2) * (log_pi - 2).mean(), rel=1e-5)
    assert losses["temperature"].item() == pytest.approx(math.exp(sac.temperature.flat.item()), rel=1e-6)
    assert all(value.shape == () and not value.requires_grad for value in losses.values())


def test_same_seed_gives_the_same_update() -> None:
    one, other, batch = make_sac(), make_sac(), make_batch()
    assert update_once(one, batch) == update_once(other, batch)
    assert torch.equal(one.actor.flat, other.actor.flat)
    update_once(other, batch, seed=4)
    update_once(one, batch, seed=5)
    assert not torch.equal(one.actor.flat, other.actor.flat)


def test_update_with_random_numbers_of_its_own_leaves_those_of_the_process_alone() -> None:
    one, other, batch = make_sac(), make_sac(), make_batch()
    before = torch.get_rng_state()
    for sac, seed in ((one, 1), (other, 2)):
        sac.update(batch, torch.Generator().manual_seed(seed))
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(one.actor.flat, other.actor.flat)


@pytest.mark.parametrize("tau", [0.0, 0.01, 0.25, 1.0])
def test_target_moves_by_tau(tau: float) -> None:
    sac, batch = make_sac(tau=tau), make_batch()
    sac.target_critic.flat.add_(1.0)
    before = sac.target_critic.flat.clone()
    update_once(sac, batch)
    expected = (1 - tau) * before + tau * sac.critic.flat
    torch.testing.assert_close(sac.target_critic.flat, expected, rtol=1e-5, atol=1e-6)


def test_target_starts_as_a_copy_of_its_own() -> None:
    sac = make_sac()
    assert torch.equal(sac.target_critic.flat, sac.critic.flat)
    sac.critic.flat.add_(1.0)
    assert not torch.equal(sac.target_critic.flat, sac.critic.flat)


@pytest.mark.parametrize(("target_entropy", "direction"), [(50.0, 1), (-50.0, -1)])
def test_temperature_steers_the_entropy_to_its_target(target_entropy: float, direction: int) -> None:
    sac, batch = make_sac(target_entropy=target_entropy), make_batch()
    temperatures = [math.exp(sac.temperature.flat.item())]
    for seed in range(3):
        losses = update_once(sac, batch, seed)
        assert (target_entropy - losses["entropy"].item()) * direction > 0
        temperatures.append(losses["temperature"].item())
    assert sorted(temperatures, reverse=direction < 0) == temperatures
    assert len(set(temperatures)) == 4


def test_temperature_starts_where_it_was_told() -> None:
    assert make_sac(initial_temperature=0.37).temperature.flat.exp().item() == pytest.approx(0.37, rel=1e-6)


def test_repeated_updates_fit_a_fixed_target() -> None:
    # Every episode ends at once, so that the target is the reward: the critics can only get better at it.
    sac, batch = make_sac(), make_batch(terminated=1.0)
    losses = [update_once(sac, batch, seed)["critic_loss"].item() for seed in range(300)]
    assert losses[-1] < 0.2 * losses[0]


def test_policy_is_what_the_actor_is_now() -> None:
    sac, batch = make_sac(), make_batch()
    policy = sac.policy()
    assert policy.keys() == sac.actor.frozen.keys()
    update_once(sac, batch)
    for name, tensor in policy.items():
        assert torch.equal(tensor, sac.actor.trainable[name])
        assert not tensor.requires_grad


def test_state_is_all_that_an_update_depends_on() -> None:
    # Captured updates are compared with eager ones by going back to an earlier state.
    sac, batch = separate_target(make_sac()), make_batch()
    update_once(sac, batch)
    kept = [tensor.clone() for tensor in sac.state()]

    def update_from_there() -> tuple[dict[str, Tensor], list[Tensor]]:
        for tensor, value in zip(sac.state(), kept, strict=True):
            tensor.copy_(value)
        losses = update_once(sac, batch, seed=9)
        return losses, [tensor.clone() for tensor in sac.state()]

    first_losses, first = update_from_there()
    update_once(sac, make_batch(seed=7), seed=8)
    second_losses, second = update_from_there()
    assert first_losses == second_losses
    for one, other, old in zip(first, second, kept, strict=True):
        assert torch.equal(one, other)
        assert not torch.equal(one, old)  # nothing in it that an update leaves alone


def test_blank_copy_has_the_same_shapes_and_memory_of_its_own() -> None:
    sac, batch = make_sac(), make_batch()
    operations = PLAIN._replace(name="other")
    before = [tensor.clone() for tensor in sac.state()]
    copy = sac.blank_copy(operations)
    assert copy.operations is operations
    assert sac.operations is PLAIN
    assert (copy.learning_rate, copy.tau, copy.target_entropy) == (sac.learning_rate, sac.tau, sac.target_entropy)
    for mine, theirs in zip(copy.state(), sac.state(), strict=True):
        assert mine.shape == theirs.shape
    update_once(copy, batch)
    for now, then in zip(sac.state(), before, strict=True):
        assert torch.equal(now, then)


# --- on two devices ---------------------------------------------------------------------------------------------


def make_side(role: LearnerRole) -> Sac:
    sac: Sac = make(Sac, OBS_DIM, ACT_DIM, learning_rate=1e-2, tau=0.1, role=role)
    return sac


def test_two_sides_that_exchange_after_each_step_are_the_whole() -> None:
    whole, critic, actor = make_sac(), make_side("critic"), make_side("actor")
    for seed in range(20):
        batch = make_batch(seed)
        # Each side draws all the random numbers of an update, so that it has its own of them.
        expected = update(whole, batch, torch.Generator().manual_seed(seed))
        of_critic = update(critic, batch, torch.Generator().manual_seed(seed))
        for mine, theirs in zip(actor.others(), critic.own(), strict=True):
            mine.copy_(theirs)
        of_actor = update(actor, batch, torch.Generator().manual_seed(seed))
        for mine, theirs in zip(critic.others(), actor.own(), strict=True):
            mine.copy_(theirs)
        for figure in Sac.figures:
            mine = of_critic if figure.side == "critic" else of_actor
            assert torch.equal(mine[figure.name], expected[figure.name])
    for name in ("actor", "critic", "temperature"):
        side = critic if name == "critic" else actor
        assert torch.equal(getattr(side, name).flat, getattr(whole, name).flat)
    assert torch.equal(critic.target_critic.flat, whole.target_critic.flat)


@pytest.mark.parametrize(
    ("role", "moves"), [("critic", {"critic", "target_critic"}), ("actor", {"actor", "temperature"})]
)
def test_a_side_moves_what_is_its_own_and_nothing_else(role: LearnerRole, moves: set[str]) -> None:
    sac = make_side(role)
    names = ("actor", "critic", "target_critic", "temperature")
    before = {name: getattr(sac, name).flat.clone() for name in names}
    sac.update(make_batch())
    assert {name for name in names if not torch.equal(getattr(sac, name).flat, before[name])} == moves
