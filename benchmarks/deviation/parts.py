"""Parts of variants: a loss, a density and a network that Spreeze does not have."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from spreeze.algorithms import FlatParameters, Tensors
from spreeze.algorithms.kernels.operations import Operations


def squashed_gaussian_without_bounds(output: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return a = tanh(mean + std * noise) and log pi(a), with whatever log standard deviation the actor gives."""
    mean, log_std = output.chunk(2, dim=-1)
    u = mean + log_std.exp() * noise
    log_normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
    log_derivative = 2 * (math.log(2) - u - torch.nn.functional.softplus(-2 * u))
    return u.tanh(), (log_normal - log_derivative).sum(-1)


def huber(q: Tensor, target: Tensor) -> Tensor:
    """Return sum_i mean h(q_i - target), h(e) = 1/2 e^2 up to 1 and |e| - 1/2 beyond: the gradient of an error
    clipped to [-1, 1]."""
    return torch.nn.functional.huber_loss(q, target.expand_as(q), reduction="none").mean(-1).sum()


def glorot(network: FlatParameters, generator: torch.Generator) -> None:
    """Draw weights from U(-b, b), b = sqrt(6 / (inputs + outputs)), and no biases: TensorFlow's usual layers."""
    for name, tensor in network.frozen.items():
        drawn = torch.zeros(tensor.shape)
        if name.endswith(".weight"):
            bound = math.sqrt(6 / (tensor.shape[-2] + tensor.shape[-1]))
            drawn.uniform_(-bound, bound, generator=generator)
        tensor.copy_(drawn)


def shrink_last_layer(network: FlatParameters, layer: int, bound: float) -> None:
    """Bring what was drawn from +- 1 / sqrt(inputs) within a bound."""
    weight = next(tensor for name, tensor in network.frozen.items() if name.endswith(f".{layer}.weight"))
    factor = bound * math.sqrt(weight.shape[-2])
    for name, tensor in network.frozen.items():
        if f".{layer}." in name:
            tensor.mul_(factor)


def late_action_shapes(obs_dim: int, act_dim: int, hidden: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Parameters of one critic that sees the action in its second layer."""
    widths_in, widths_out = [obs_dim, *hidden], [*hidden, 1]
    widths_in[1] += act_dim
    shapes: dict[str, tuple[int, ...]] = {}
    for i, (fan_in, fan_out) in enumerate(zip(widths_in, widths_out, strict=True)):
        shapes[f"critic.{i}.weight"], shapes[f"critic.{i}.bias"] = (1, fan_in, fan_out), (1, 1, fan_out)
    return shapes


def late_action_q(critic: Tensors, observation: Tensor, action: Tensor, operations: Operations) -> Tensor:
    """Return Q of each pair, (1, batch)."""
    x, last = observation, len(critic) // 2 - 1
    for i in range(last + 1):
        x = operations.dense(x, critic[f"critic.{i}.weight"], critic[f"critic.{i}.bias"], i < last)
        if i == 0:
            x = torch.cat([x, action[None]], -1)
    return x.squeeze(-1)
