"""Networks as plain functions of named parameters that lie in one flat buffer.

One buffer for all parameters of a network, one for their gradients: an optimiser step, a target update and a
copy to another process are each a single operation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from torch.nn import functional

# Bounds of the log standard deviation (policy.py acts with the same): exp(-5) is as good as deterministic, and
# exp(2) already saturates tanh.
LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0
TWINS = 2

Shapes = Mapping[str, tuple[int, ...]]
Tensors = Mapping[str, Tensor]


class FlatParameters:
    """Named parameters that share one flat buffer, and their gradients, that share another."""

    def __init__(self, shapes: Shapes, device: torch.device) -> None:
        total = sum(math.prod(shape) for shape in shapes.values())
        self.flat = torch.zeros(total, device=device)
        self.flat.grad = torch.zeros(total, device=device)
        # Leaves of the graph: their .grad is a piece of flat.grad, into which backward() adds.
        self.trainable: dict[str, Tensor] = {}
        # The same memory, for passes through which no gradient of these parameters is wanted.
        self.frozen: dict[str, Tensor] = {}
        for name, values, gradient in zip(
            shapes, _pieces(self.flat, shapes), _pieces(self.flat.grad, shapes), strict=True
        ):
            self.frozen[name] = values
            self.trainable[name] = values.detach().requires_grad_(True)
            self.trainable[name].grad = gradient

    def zero_grad(self) -> None:
        """Clear the gradients, in place: the pieces must stay pieces of the flat buffer."""
        assert self.flat.grad is not None
        self.flat.grad.zero_()


def _pieces(flat: Tensor, shapes: Shapes) -> Iterator[Tensor]:
    begin = 0
    for shape in shapes.values():
        end = begin + math.prod(shape)
        yield flat[begin:end].view(shape)
        begin = end


def actor_shapes(obs_dim: int, act_dim: int, hidden: tuple[int, ...]) -> Shapes:
    """Parameters of the actor; weights are (in, out)."""
    widths = (obs_dim, *hidden, 2 * act_dim)
    shapes: dict[str, tuple[int, ...]] = {}
    for i in range(len(widths) - 1):
        shapes[f"actor.{i}.weight"] = (widths[i], widths[i + 1])
        shapes[f"actor.{i}.bias"] = (widths[i + 1],)
    return shapes


def critic_shapes(obs_dim: int, act_dim: int, hidden: tuple[int, ...]) -> Shapes:
    """Parameters of both critics, stacked; weights are (twins, in, out)."""
    widths = (obs_dim + act_dim, *hidden, 1)
    shapes: dict[str, tuple[int, ...]] = {}
    for i in range(len(widths) - 1):
        shapes[f"critic.{i}.weight"] = (TWINS, widths[i], widths[i + 1])
        shapes[f"critic.{i}.bias"] = (TWINS, 1, widths[i + 1])
    return shapes


def initialise(parameters: FlatParameters, generator: torch.Generator) -> None:
    """Draw weights and biases from U(-1/sqrt(fan_in), 1/sqrt(fan_in)), as torch.nn.Linear does."""
    bound = 1.0
    for name, tensor in parameters.frozen.items():
        if name.endswith(".weight"):
            bound = tensor.shape[-2] ** -0.5
        drawn = torch.rand(tensor.shape, generator=generator) * (2 * bound) - bound
        tensor.copy_(drawn)


def gaussian(actor: Tensors, observation: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and log standard deviation before squashing, each (batch, act_dim)."""
    x = observation
    last = len(actor) // 2 - 1
    for i in range(last):
        x = torch.addmm(actor[f"actor.{i}.bias"], x, actor[f"actor.{i}.weight"]).relu_()
    output = torch.addmm(actor[f"actor.{last}.bias"], x, actor[f"actor.{last}.weight"])
    mean, log_std = output.chunk(2, dim=-1)
    return mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)


def sample_action(actor: Tensors, observation: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return a = tanh(u), u = mean + std * noise, and log pi(a | observation), (batch,).

    log pi(a) = log N(u; mean, std) - sum log(1 - tanh(u)^2)      (Haarnoja et al. 2018, appendix C)
    with log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)), which does not lose its digits for large |u|.
    """
    mean, log_std = gaussian(actor, observation)
    u = mean + log_std.exp() * noise
    log_normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
    log_derivative = 2 * (math.log(2) - u - functional.softplus(-2 * u))
    return u.tanh(), (log_normal - log_derivative).sum(-1)


def twin_q(critic: Tensors, observation: Tensor, action: Tensor) -> Tensor:
    """Return Q_1 and Q_2 of each pair, (twins, batch), in one batched product a layer."""
    x = torch.cat([observation, action], dim=-1).expand(TWINS, -1, -1)
    last = len(critic) // 2 - 1
    for i in range(last):
        x = torch.baddbmm(critic[f"critic.{i}.bias"], x, critic[f"critic.{i}.weight"]).relu_()
    return torch.baddbmm(critic[f"critic.{last}.bias"], x, critic[f"critic.{last}.weight"]).squeeze(-1)
