from __future__ import annotations

import pytest
import torch
from making import make
from torch import Tensor

from spreeze.algorithms.batch import Batch
from spreeze.algorithms.kernels.cpu import CPU
from spreeze.algorithms.kernels.operations import PLAIN, Operations
from spreeze.algorithms.networks import (
    FlatParameters,
    actor_shapes,
    critic_shapes,
    deterministic_action,
    initialise,
    sample_action,
    twin_q,
)
from spreeze.algorithms.sac import Sac

DEVICE = torch.device("cpu")
ROUNDING = 0.08  # a factor in bfloat16 has 8 bits; errors of many products even out, ReLUs near 0 may turn
SHAPES = [(3, 1, (64, 64)), (17, 6, (256, 256)), (100, 20, (128,)), (5, 2, (96, 32, 80))]


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


def network(shapes: dict[str, tuple[int, ...]]) -> FlatParameters:
    parameters = FlatParameters(shapes, DEVICE)
    initialise(parameters, torch.Generator().manual_seed(1))
    return parameters


def gradients(parameters: FlatParameters) -> Tensor:
    assert parameters.flat.grad is not None
    return parameters.flat.grad.clone()


def near(mine: Tensor, theirs: Tensor, tolerance: float = ROUNDING) -> None:
    assert mine.dtype == theirs.dtype == torch.float32
    assert mine.shape == theirs.shape
    assert float((mine - theirs).norm()) <= tolerance * float(theirs.norm())


@pytest.mark.parametrize("rows", [1, 7, 256])
@pytest.mark.parametrize(("obs_dim", "act_dim", "hidden"), SHAPES)
def test_critics_and_their_gradients(rows: int, obs_dim: int, act_dim: int, hidden: tuple[int, ...]) -> None:
    observation, weighting = torch.randn(rows, obs_dim), torch.randn(2, rows)
    action = torch.rand(rows, act_dim) * 2 - 1
    results = []
    for operations in (PLAIN, CPU):
        critic = network(dict(critic_shapes(obs_dim, act_dim, hidden)))
        own_action = action.clone().requires_grad_(True)
        q = twin_q(critic.trainable, observation, own_action, operations)
        (q * weighting).sum().backward()
        assert own_action.grad is not None
        results.append((q.detach(), own_action.grad, gradients(critic)))
    for theirs, mine in zip(*results, strict=True):
        near(mine, theirs)
    # Rounded, so not the same: otherwise nothing of the above was tested.
    if len(hidden) > 1 and min(hidden[:2]) >= 64:
        assert not torch.equal(results[0][0], results[1][0])


@pytest.mark.parametrize(("obs_dim", "act_dim", "hidden"), SHAPES)
def test_actor_and_its_gradients(obs_dim: int, act_dim: int, hidden: tuple[int, ...]) -> None:
    observation, noise, weighting = torch.randn(64, obs_dim), torch.randn(64, act_dim), torch.randn(64, act_dim)
    results = []
    for operations in (PLAIN, CPU):
        actor = network(dict(actor_shapes(obs_dim, 2 * act_dim, hidden)))
        action, log_pi = sample_action(actor.trainable, observation, noise, operations)
        ((action * weighting).sum() + log_pi.mean()).backward()
        results.append((action.detach(), log_pi.detach(), gradients(actor)))
    for theirs, mine in zip(*results, strict=True):
        near(mine, theirs)


@pytest.mark.parametrize("act_dim", [1, 6])
def test_an_actor_without_noise_and_its_gradients(act_dim: int) -> None:
    observation, weighting = torch.randn(64, 17), torch.randn(64, act_dim)
    results = []
    for operations in (PLAIN, CPU):
        actor = network(dict(actor_shapes(17, act_dim, (256, 256))))
        action = deterministic_action(actor.trainable, observation, operations)
        (action * weighting).sum().backward()
        results.append((action.detach(), gradients(actor)))
    for theirs, mine in zip(*results, strict=True):
        near(mine, theirs)


def test_observations_keep_their_digits() -> None:
    critic = network(dict(critic_shapes(100, 20, (128,))))
    observation, action = 1 + 1e-4 * torch.randn(16, 100), torch.randn(16, 20)
    near(twin_q(critic.frozen, observation, action, CPU), twin_q(critic.frozen, observation, action), 0.01)
    changed = observation + 1e-3  # less than bfloat16 can tell apart at 1
    assert not torch.equal(
        twin_q(critic.frozen, observation, action, CPU), twin_q(critic.frozen, changed, action, CPU)
    )


def test_gradients_are_added_to_those_that_are_there_and_frozen_parameters_get_none() -> None:
    critic = network(dict(critic_shapes(3, 2, (64, 64))))
    observation, action = torch.randn(8, 3), torch.randn(8, 2)
    twin_q(critic.trainable, observation, action, CPU).sum().backward()
    once = gradients(critic)
    twin_q(critic.trainable, observation, action, CPU).sum().backward()
    torch.testing.assert_close(gradients(critic), 2 * once)
    twin_q(critic.frozen, observation, action.requires_grad_(True), CPU).sum().backward()
    torch.testing.assert_close(gradients(critic), 2 * once)


def test_updates_stay_near_those_in_float32() -> None:
    rows = torch.randn(512, 43)
    rows[:, 17:23].tanh_()
    rows[:, 41], rows[:, 42] = 0.0, 0.99
    batch = Batch(rows[:, :17], rows[:, 17:23], rows[:, 23], rows[:, 24:41], rows[:, 41], rows[:, 42])

    def after(operations: Operations) -> tuple[Sac, Tensor]:
        sac: Sac = make(Sac, 17, 6, (256, 256), tau=0.02, operations=operations)
        torch.manual_seed(0)
        for _ in range(8):
            terms = sac.update(batch)
        return sac, sac.report(terms)

    plain, plain_losses = after(PLAIN)
    rounded, rounded_losses = after(CPU)
    torch.testing.assert_close(rounded_losses, plain_losses, rtol=0.03, atol=0.03)
    origins = plain.blank_copy(PLAIN).parameters()
    moved = zip(rounded.parameters(), plain.parameters(), origins, strict=True)
    assert all((mine - theirs).norm() < 0.3 * (theirs - origin).norm() for mine, theirs, origin in list(moved)[:3])
