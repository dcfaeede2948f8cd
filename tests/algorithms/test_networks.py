from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Independent, Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform

from spreeze.algorithms.kernels.operations import LOG_STD_MAX, LOG_STD_MIN
from spreeze.algorithms.networks import (
    FlatParameters,
    actor_shapes,
    critic_shapes,
    gaussian,
    initialise,
    sample_action,
    twin_q,
)

TWINS = 2

CPU = torch.device("cpu")
torch.set_num_threads(1)  # at these sizes a second thread only waits for the first
SIZES = [(3, 1, (8,)), (17, 6, (32, 32)), (5, 2, (16, 8, 4))]


def make_actor(obs_dim: int, act_dim: int, hidden: tuple[int, ...], seed: int = 0) -> FlatParameters:
    actor = FlatParameters(actor_shapes(obs_dim, 2 * act_dim, hidden), CPU)
    initialise(actor, torch.Generator().manual_seed(seed))
    return actor


def make_critic(obs_dim: int, act_dim: int, hidden: tuple[int, ...], seed: int = 0) -> FlatParameters:
    critic = FlatParameters(critic_shapes(obs_dim, act_dim, hidden), CPU)
    initialise(critic, torch.Generator().manual_seed(seed))
    return critic


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def in_double(tensor: Tensor) -> NDArray[np.float64]:
    return tensor.detach().numpy().astype(np.float64)


def layers_by_hand(parameters: FlatParameters, prefix: str, inputs: NDArray[np.float64]) -> NDArray[np.float64]:
    """A ReLU network in float64; leading axes of the weights are separate networks."""
    count = len(parameters.frozen) // 2
    x = inputs
    for i in range(count):
        weight = in_double(parameters.frozen[f"{prefix}.{i}.weight"])
        x = x @ weight + in_double(parameters.frozen[f"{prefix}.{i}.bias"])
        if i < count - 1:
            x = np.maximum(x, 0.0)
    return x


# --- parameters -------------------------------------------------------------------------------------------------


def test_parameters_are_pieces_of_the_flat_buffer() -> None:
    parameters = FlatParameters({"a": (2, 3), "b": (4,)}, CPU)
    parameters.flat.copy_(torch.arange(10.0))
    for tensors in (parameters.frozen, parameters.trainable):
        assert tensors["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert tensors["b"].tolist() == [6, 7, 8, 9]


def test_gradients_land_in_the_flat_gradient_and_add_up() -> None:
    parameters = FlatParameters({"a": (2,), "b": (3,)}, CPU)
    gradient = parameters.flat.grad
    assert gradient is not None
    for times in (1, 2):
        (2 * parameters.trainable["a"].sum() - parameters.trainable["b"][1]).backward()  # type: ignore[no-untyped-call]
        assert gradient.tolist() == [2 * times, 2 * times, 0, -times, 0]
    parameters.zero_grad()
    assert gradient.tolist() == [0] * 5
    parameters.trainable["b"].sum().backward()  # type: ignore[no-untyped-call]
    assert gradient.tolist() == [0, 0, 1, 1, 1]  # still the same memory after clearing
    assert parameters.flat.grad is gradient


def test_frozen_parameters_are_outside_the_graph() -> None:
    parameters = FlatParameters({"a": (2,)}, CPU)
    assert not parameters.frozen["a"].requires_grad
    assert not (3 * parameters.frozen["a"]).requires_grad
    assert parameters.trainable["a"].is_leaf


@pytest.mark.parametrize(("obs_dim", "act_dim", "hidden"), SIZES)
def test_flat_buffer_holds_every_parameter_once(obs_dim: int, act_dim: int, hidden: tuple[int, ...]) -> None:
    for shapes in (actor_shapes(obs_dim, 2 * act_dim, hidden), critic_shapes(obs_dim, act_dim, hidden)):
        parameters = FlatParameters(shapes, CPU)
        assert {name: tuple(tensor.shape) for name, tensor in parameters.frozen.items()} == dict(shapes)
        assert len(parameters.flat) == sum(math.prod(shape) for shape in shapes.values())
        for number, tensor in enumerate(parameters.frozen.values(), 1):
            tensor.fill_(number)
        assert torch.bincount(parameters.flat.long()).tolist() == [
            0,
            *(math.prod(shape) for shape in shapes.values()),
        ]


def test_initial_weights_are_those_of_a_linear_layer() -> None:
    critic = make_critic(10, 6, (64, 64))
    for i, fan_in in enumerate((16, 64, 64)):
        bound = fan_in**-0.5
        for kind in ("weight", "bias"):
            values = critic.frozen[f"critic.{i}.{kind}"]
            assert values.abs().max() <= bound
            assert torch.unique(values).numel() > 0.99 * values.numel()
        weight = critic.frozen[f"critic.{i}.weight"]
        assert weight.abs().max() > 0.9 * bound
        assert not torch.equal(weight[0], weight[1])  # twins that start equal would stay equal
    assert torch.equal(make_critic(10, 6, (64, 64)).flat, critic.flat)
    assert not torch.equal(make_critic(10, 6, (64, 64), seed=1).flat, critic.flat)


# --- critics ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("obs_dim", "act_dim", "hidden"), SIZES)
def test_twins_in_one_pass_equal_two_passes(obs_dim: int, act_dim: int, hidden: tuple[int, ...]) -> None:
    critic = make_critic(obs_dim, act_dim, hidden)
    observation, action = normal(7, obs_dim), normal(7, act_dim, seed=2).tanh()
    together = twin_q(critic.frozen, observation, action)
    assert together.shape == (TWINS, 7)
    for twin in range(TWINS):
        x = torch.cat([observation, action], dim=-1)
        for i in range(len(hidden) + 1):
            x = x @ critic.frozen[f"critic.{i}.weight"][twin] + critic.frozen[f"critic.{i}.bias"][twin]
            x = x.relu() if i < len(hidden) else x
        torch.testing.assert_close(together[twin], x.squeeze(-1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("obs_dim", "act_dim", "hidden"), SIZES)
def test_q_in_float32_is_that_of_float64(obs_dim: int, act_dim: int, hidden: tuple[int, ...]) -> None:
    critic = make_critic(obs_dim, act_dim, hidden)
    observation, action = normal(64, obs_dim), normal(64, act_dim, seed=2).tanh()
    inputs = in_double(torch.cat([observation, action], dim=-1))
    expected = layers_by_hand(critic, "critic", inputs).squeeze(-1)
    np.testing.assert_allclose(twin_q(critic.frozen, observation, action), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("apart", [0, 1])
def test_q_of_columns_of_the_same_rows_is_that_of_copies(apart: int) -> None:
    # Neighbours are taken as they lie; columns with something in between must not be.
    critic, rows = make_critic(3, 2, (8,)), normal(7, 9)
    observation, action = rows[:, 1:4], rows[:, 4 + apart : 6 + apart]
    expected = twin_q(critic.frozen, observation.clone(), action.clone())
    torch.testing.assert_close(twin_q(critic.frozen, observation, action), expected)
    swapped = twin_q(critic.frozen, rows[:, 4 + apart : 7 + apart], rows[:, 2:4])
    expected = twin_q(critic.frozen, rows[:, 4 + apart : 7 + apart].clone(), rows[:, 2:4].clone())
    torch.testing.assert_close(swapped, expected)


def test_gradient_reaches_an_action_that_is_stored_next_to_its_observation() -> None:
    critic, rows = make_critic(3, 2, (8,)), normal(7, 5)
    action = rows[:, 3:].requires_grad_(True)
    twin_q(critic.frozen, rows[:, :3], action).sum().backward()
    assert action.grad is not None
    assert action.grad.abs().sum() > 0


# --- actor ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("obs_dim", "act_dim", "hidden"), SIZES)
def test_gaussian_in_float32_is_that_of_float64(obs_dim: int, act_dim: int, hidden: tuple[int, ...]) -> None:
    actor = make_actor(obs_dim, act_dim, hidden)
    observation = normal(64, obs_dim)
    output = layers_by_hand(actor, "actor", in_double(observation))
    mean, log_std = gaussian(actor.frozen, observation)
    np.testing.assert_allclose(mean, output[:, :act_dim], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(log_std, output[:, act_dim:].clip(LOG_STD_MIN, LOG_STD_MAX), rtol=1e-5, atol=1e-6)


def test_log_std_stays_within_its_bounds() -> None:
    actor = make_actor(3, 2, (8,))
    actor.frozen["actor.1.bias"].copy_(torch.tensor([0.0, 0.0, 100.0, -100.0]))
    _, log_std = gaussian(actor.frozen, normal(5, 3))
    assert log_std.tolist() == [[LOG_STD_MAX, LOG_STD_MIN]] * 5


@pytest.mark.parametrize(("obs_dim", "act_dim", "hidden"), SIZES)
def test_log_probability_is_that_of_the_squashed_normal(obs_dim: int, act_dim: int, hidden: tuple[int, ...]) -> None:
    actor = make_actor(obs_dim, act_dim, hidden)
    observation, noise = normal(64, obs_dim), normal(64, act_dim, seed=2)
    action, log_pi = sample_action(actor.frozen, observation, noise)
    mean, log_std = (tensor.double() for tensor in gaussian(actor.frozen, observation))
    u = mean + log_std.exp() * noise.double()
    squashed = TransformedDistribution(Independent(Normal(mean, log_std.exp()), 1), [TanhTransform(cache_size=1)])
    # From the same u: atanh(action) would lose the digits that are compared here.
    jacobian = TanhTransform().log_abs_det_jacobian(u, u.tanh())  # type: ignore[no-untyped-call]
    expected = squashed.base_dist.log_prob(u) - jacobian.sum(-1)
    torch.testing.assert_close(action.double(), u.tanh(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(log_pi.double(), expected, rtol=1e-5, atol=1e-5)
    by_torch = squashed.log_prob(u.tanh())  # type: ignore[no-untyped-call]
    torch.testing.assert_close(log_pi.double(), by_torch, rtol=1e-4, atol=1e-4)


@settings(deadline=None)
@given(st.floats(-20.0, 20.0), st.floats(LOG_STD_MIN, LOG_STD_MAX), st.floats(-4.0, 4.0))
def test_log_probability_keeps_its_digits_where_tanh_saturates(mean: float, log_std: float, noise: float) -> None:
    # A network without hidden layers whose weights are zero: its output is its bias.
    actor = {"actor.0.weight": torch.zeros(1, 2), "actor.0.bias": torch.tensor([mean, log_std])}
    action, log_pi = sample_action(actor, torch.zeros(1, 1), torch.tensor([[noise]]))
    mean, log_std, noise = (float(np.float32(number)) for number in (mean, log_std, noise))
    u = mean + math.exp(log_std) * noise
    # 1 - tanh(u)^2 = 1 / cosh(u)^2, whose logarithm has no cancellation.
    log_cosh = abs(u) + math.log1p(math.exp(-2 * abs(u))) - math.log(2)
    expected = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi) + 2 * log_cosh
    assert -1 <= action.item() <= 1
    assert log_pi.item() == pytest.approx(expected, rel=1e-5, abs=1e-4)


def test_gradient_flows_through_the_action_to_the_actor() -> None:
    actor = make_actor(3, 2, (8,))
    action, log_pi = sample_action(actor.trainable, normal(5, 3), normal(5, 2, seed=2))
    (action.sum() + log_pi.sum()).backward()  # type: ignore[no-untyped-call]
    assert actor.flat.grad is not None
    for name in actor.trainable:
        gradient = actor.trainable[name].grad
        assert gradient is not None
        assert gradient.abs().sum() > 0
    assert actor.flat.grad.isfinite().all()
