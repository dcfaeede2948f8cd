"""PyTorch's own way of each operation, against NumPy in float64 and against small differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from spreeze.algorithms.kernels.operations import LOG_STD_MAX, LOG_STD_MIN, PLAIN, Adam

torch.set_num_threads(1)  # at these sizes a second thread only waits for the first
Doubles = NDArray[np.float64]
ROWS, INS, OUTS, TWINS = 9, 5, 4, 2

# The shapes of x, W and b that the networks use.
LAYERS = {
    "one network": ((ROWS, INS), (INS, OUTS), (OUTS,)),
    "twins": ((TWINS, ROWS, INS), (TWINS, INS, OUTS), (TWINS, 1, OUTS)),
    "twins that share their input": ((ROWS, INS), (TWINS, INS, OUTS), (TWINS, 1, OUTS)),
}


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def double(tensor: Tensor) -> Doubles:
    return tensor.detach().numpy().astype(np.float64)


def agrees_with_small_differences(function: Callable[..., Any], *inputs: Tensor) -> bool:
    leaves = [tensor.double().requires_grad_(True) for tensor in inputs]
    return torch.autograd.gradcheck(function, leaves)


# --- layers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shapes", LAYERS.values(), ids=LAYERS)
def test_layer_is_the_product_the_bias_and_the_relu(shapes: tuple[tuple[int, ...], ...], relu: bool) -> None:
    x, weight, bias = (normal(*shape, seed=seed) for seed, shape in enumerate(shapes))
    output = PLAIN.dense(x, weight, bias, relu)
    expected = double(x) @ double(weight) + double(bias)
    assert output.shape == expected.shape
    assert 0.2 < (expected < 0).mean() < 0.8  # or the ReLU would do nothing
    np.testing.assert_allclose(output, np.maximum(expected, 0.0) if relu else expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shapes", LAYERS.values(), ids=LAYERS)
def test_gradients_of_a_layer(shapes: tuple[tuple[int, ...], ...], relu: bool) -> None:
    inputs = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    assert agrees_with_small_differences(lambda x, w, b: PLAIN.dense(x, w, b, relu), *inputs)


def test_layer_takes_columns_of_wider_rows() -> None:
    rows, weight, bias = normal(ROWS, INS + 7), normal(INS, OUTS, seed=1), normal(OUTS, seed=2)
    columns = rows[:, 3 : 3 + INS]
    expected = double(columns) @ double(weight) + double(bias)
    np.testing.assert_allclose(PLAIN.dense(columns, weight, bias, False), expected, rtol=1e-5, atol=1e-6)


# --- the squashed Gaussian --------------------------------------------------------------------------------------


def test_action_and_its_log_probability_are_those_of_the_squashed_normal() -> None:
    acts = 3
    output, noise = normal(200, 2 * acts), normal(200, acts, seed=1)
    output[:, acts:] *= 4  # some standard deviations end at their bounds
    mean, log_std = double(output)[:, :acts], double(output)[:, acts:].clip(LOG_STD_MIN, LOG_STD_MAX)
    assert {LOG_STD_MIN, LOG_STD_MAX} <= set(log_std.flat)
    u = mean + np.exp(log_std) * double(noise)
    # 1 - tanh(u)^2 = 1 / cosh(u)^2 and log cosh(u) = log(e^u + e^-u) - log 2: neither loses digits.
    log_cosh = np.logaddexp(u, -u) - math.log(2)
    log_density = -0.5 * double(noise) ** 2 - log_std - 0.5 * math.log(2 * math.pi)

    action, log_pi = PLAIN.squashed_gaussian(output, noise)

    np.testing.assert_allclose(action, np.tanh(u), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(log_pi, (log_density + 2 * log_cosh).sum(-1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (1.5, -1.0), (-0.5, 0.5), (0.0, LOG_STD_MIN)])
def test_probabilities_of_all_actions_sum_to_one(mean: float, log_std: float) -> None:
    noise = torch.linspace(-8, 8, 20_001, dtype=torch.float64)[:, None]
    output = torch.tensor([mean, log_std], dtype=torch.float64).expand(len(noise), 2)
    action, log_pi = PLAIN.squashed_gaussian(output, noise)
    assert torch.trapezoid(log_pi.exp(), action[:, 0]).item() == pytest.approx(1, abs=1e-4)


def test_gradients_of_the_squashed_gaussian() -> None:
    output, noise = 0.5 * normal(20, 4), normal(20, 2, seed=1)
    assert output[:, 2:].min() > LOG_STD_MIN
    assert output[:, 2:].max() < LOG_STD_MAX
    noise = noise.double()
    assert agrees_with_small_differences(lambda out: PLAIN.squashed_gaussian(out, noise), output)


def test_standard_deviations_beyond_their_bounds_get_no_gradient() -> None:
    output = torch.tensor([[0.3, LOG_STD_MAX + 1], [0.3, LOG_STD_MIN - 1], [0.3, 0.5]], requires_grad=True)
    action, log_pi = PLAIN.squashed_gaussian(output, torch.full((3, 1), 0.7))
    (action.sum() + log_pi.sum()).backward()
    assert output.grad is not None
    assert (output.grad[:, 0] != 0).all()
    assert (output.grad[:, 1] != 0).tolist() == [False, False, True]


# --- what comes after the critics -------------------------------------------------------------------------------


def test_bootstrap_is_the_reward_and_what_follows() -> None:
    q, log_pi, reward = normal(2, 50), normal(50, seed=1), normal(50, seed=2)
    discount = torch.rand(50, generator=torch.Generator().manual_seed(3))
    terminated = (normal(50, seed=4) > 0).float()
    log_alpha = torch.tensor([-1.3])

    target = PLAIN.soft_bootstrap(q, log_pi, log_alpha, reward, discount, terminated)

    value = double(q).min(0) - math.exp(-1.3) * double(log_pi)
    expected = double(reward) + double(discount) * (1 - double(terminated)) * value
    np.testing.assert_allclose(target, expected, rtol=1e-5, atol=1e-6)
    ended = terminated == 1
    assert 0 < ended.sum() < 50
    assert torch.equal(target[ended], reward[ended])


def test_squared_error_is_summed_over_the_twins_and_averaged_over_the_batch() -> None:
    q, target = normal(2, 50), normal(50, seed=1)
    first, second = double(q) - double(target)
    expected = 0.5 * (first**2).mean() + 0.5 * (second**2).mean()
    assert PLAIN.squared_error(q, target).item() == pytest.approx(expected, rel=1e-5)
    fixed = target.double()
    assert agrees_with_small_differences(lambda values: PLAIN.squared_error(values, fixed), q)


def test_gradient_of_the_squared_error_is_the_difference_of_each_row() -> None:
    q, target = normal(2, 50).requires_grad_(True), normal(50, seed=1)
    PLAIN.squared_error(q, target).backward()
    assert q.grad is not None
    np.testing.assert_allclose(q.grad, (double(q) - double(target)) / 50, rtol=1e-5, atol=1e-7)


def test_objective_is_the_temperature_times_log_pi_less_the_smaller_value() -> None:
    q, log_pi, log_alpha = normal(2, 50), normal(50, seed=1), torch.tensor([-0.7])
    expected = (math.exp(-0.7) * double(log_pi) - double(q).min(0)).mean()
    assert PLAIN.soft_objective(q, log_pi, log_alpha).item() == pytest.approx(expected, rel=1e-5)
    fixed = log_alpha.double()
    assert agrees_with_small_differences(lambda qs, logs: PLAIN.soft_objective(qs, logs, fixed), q, log_pi)


def test_where_the_twins_are_equal_each_gets_half_of_the_gradient() -> None:
    q = torch.tensor([[1.0, 5.0, 3.0, -2.0], [2.0, 4.0, 3.0, -2.0]], requires_grad=True)
    log_pi = torch.zeros(4, requires_grad=True)
    PLAIN.soft_objective(q, log_pi, torch.tensor([math.log(0.5)])).backward()
    assert q.grad is not None
    assert log_pi.grad is not None
    assert (4 * q.grad).tolist() == [[-1.0, 0.0, -0.5, -0.5], [0.0, -1.0, -0.5, -0.5]]
    assert (4 * log_pi.grad).tolist() == pytest.approx([0.5] * 4)


# --- the optimiser ----------------------------------------------------------------------------------------------


def gradients(step: int, count: int) -> Tensor:
    """Of sizes that differ by many orders, some of them zero at each step, and one of them always."""
    drawn = normal(count, seed=step) * torch.logspace(-6, 3, count)
    drawn[step % 3 :: 3] = 0
    drawn[-1] = 0
    return drawn


def test_steps_are_those_of_adam() -> None:
    count, rate = 101, 3e-3
    mine = normal(count)
    mine.grad = torch.zeros(count)
    theirs = mine.detach().clone().requires_grad_(True)
    optimiser, reference = Adam(mine, rate), torch.optim.Adam([theirs], lr=rate, betas=(0.9, 0.999), eps=1e-8)
    start = mine.clone()
    for step in range(1, 51):
        mine.grad.copy_(gradients(step, count))
        theirs.grad = gradients(step, count)
        PLAIN.adam(optimiser)
        reference.step()
        assert optimiser.steps.item() == step
        torch.testing.assert_close(mine, theirs.detach(), rtol=0, atol=1e-6)
    moved = (mine - start).abs()
    assert (moved[:-1] > 0).all()
    assert moved.median() > rate
    assert moved[-1] == 0


def test_first_step_has_the_size_of_the_learning_rate() -> None:
    flat = torch.zeros(3)
    flat.grad = torch.tensor([1e-3, -5.0, 700.0])
    PLAIN.adam(Adam(flat, 0.01))
    assert flat.tolist() == pytest.approx([-0.01, 0.01, -0.01], rel=1e-4)


def test_state_of_the_optimiser_is_all_that_a_step_depends_on() -> None:
    flat = normal(10)
    flat.grad = gradients(1, 10)
    optimiser = Adam(flat, 0.01)
    PLAIN.adam(optimiser)
    kept = [tensor.clone() for tensor in (flat, *optimiser.state())]

    def step_from_there() -> Tensor:
        for tensor, value in zip((flat, *optimiser.state()), kept, strict=True):
            tensor.copy_(value)
        PLAIN.adam(optimiser)
        return flat.clone()

    assert torch.equal(step_from_there(), step_from_there())
    assert not torch.equal(step_from_there(), kept[0])
