"""Networks as plain functions of named parameters that lie in one flat buffer.

One buffer for all parameters of a network, one for their gradients: an optimiser step, a target update and a
copy to another process are each a single operation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from spreeze.algorithms.kernels.operations import PLAIN, Operations, split_gaussian
from spreeze.algorithms.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor

Shapes = Mapping[str, tuple[int, ...]]
Tensors = Mapping[str, "Tensor"]


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


def actor_shapes(obs_dim: int, outputs: int, hidden: tuple[int, ...]) -> Shapes:
    """Parameters of the actor; weights are (in, out)."""
    widths = (obs_dim, *hidden, outputs)
    shapes: dict[str, tuple[int, ...]] = {}
    for i in range(len(widths) - 1):
        shapes[f"actor.{i}.weight"] = (widths[i], widths[i + 1])
        shapes[f"actor.{i}.bias"] = (widths[i + 1],)
    return shapes


def critic_shapes(
    obs_dim: int,
    act_dim: int,
    hidden: tuple[int, ...],
    critics: int = 2,
    layer_norm: bool = False,
    outputs: int = 1,
) -> Shapes:
    """Parameters of all critics, stacked; weights are (critics, in, out)."""
    widths = (obs_dim + act_dim, *hidden, outputs)
    shapes: dict[str, tuple[int, ...]] = {}
    for i in range(len(widths) - 1):
        shapes[f"critic.{i}.weight"] = (critics, widths[i], widths[i + 1])
        shapes[f"critic.{i}.bias"] = (critics, 1, widths[i + 1])
        if layer_norm and i < len(hidden):
            shapes[f"critic.{i}.scale"] = shapes[f"critic.{i}.shift"] = (critics, 1, widths[i + 1])
    return shapes


def initialise(parameters: FlatParameters, generator: torch.Generator) -> None:
    """Draw weights and biases from U(-1/sqrt(fan_in), 1/sqrt(fan_in)), as torch.nn.Linear does."""
    bound = 1.0
    for name, tensor in parameters.frozen.items():
        if name.endswith((".scale", ".shift")):
            tensor.fill_(name.endswith(".scale"))
            continue
        if name.endswith(".weight"):
            bound = tensor.shape[-2] ** -0.5
        drawn = torch.rand(tensor.shape, generator=generator) * (2 * bound) - bound
        tensor.copy_(drawn)


def gaussian(actor: Tensors, observation: Tensor, operations: Operations = PLAIN) -> tuple[Tensor, Tensor]:
    """Return mean and log standard deviation before squashing, each (batch, act_dim)."""
    return split_gaussian(_layers("actor", actor, observation, operations))


def sample_action(
    actor: Tensors, observation: Tensor, noise: Tensor, operations: Operations = PLAIN
) -> tuple[Tensor, Tensor]:
    """Return a = tanh(u), u = mean + std * noise, and log pi(a | observation), (batch,)."""
    return operations.squashed_gaussian(_layers("actor", actor, observation, operations), noise)


def deterministic_action(actor: Tensors, observation: Tensor, operations: Operations = PLAIN) -> Tensor:
    """Return a = tanh(u) of an actor that gives u alone, (batch, act_dim)."""
    return _layers("actor", actor, observation, operations).tanh()


def twin_q(critic: Tensors, observation: Tensor, action: Tensor, operations: Operations = PLAIN) -> Tensor:
    """Return Q_i of each pair for all critics, (critics, batch), in one batched product a layer."""
    return twin_outputs(critic, observation, action, operations).squeeze(-1)


def twin_outputs(critic: Tensors, observation: Tensor, action: Tensor, operations: Operations = PLAIN) -> Tensor:
    """Return the outputs of all critics for each pair, (critics, batch, outputs)."""
    return _layers("critic", critic, _concatenated(observation, action), operations)


def outputs_of(critic: Tensors, observation: Tensor, operations: Operations = PLAIN) -> Tensor:
    """Return the outputs of critics that see no action, (critics, batch, outputs)."""
    return _layers("critic", critic, observation, operations)


def logits_of(actor: Tensors, observation: Tensor, operations: Operations = PLAIN) -> Tensor:
    """Return the outputs of an actor that chooses, (batch, values)."""
    return _layers("actor", actor, observation, operations)


def _concatenated(left: Tensor, right: Tensor) -> Tensor:
    """Return both as one tensor; neighbouring columns of the same rows are not copied."""
    is_same_memory = left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()
    is_next = left.storage_offset() + left.shape[-1] * left.stride(-1) == right.storage_offset()
    if is_same_memory and is_next and left.stride() == right.stride() and not right.requires_grad:
        return left.as_strided((len(left), left.shape[-1] + right.shape[-1]), left.stride())
    return torch.cat([left, right], dim=-1)


def _layers(name: str, network: Tensors, x: Tensor, operations: Operations) -> Tensor:
    if operations.network is not None and f"{name}.0.scale" not in network:
        return operations.network(x, list(network.values()))
    last = sum(key.endswith(".weight") for key in network) - 1
    for i in range(last + 1):
        scale = network.get(f"{name}.{i}.scale")
        x = operations.dense(
            x, network[f"{name}.{i}.weight"], network[f"{name}.{i}.bias"], i < last and scale is None
        )
        if scale is not None:  # Ba et al. 2016
            x = torch.nn.functional.layer_norm(x, x.shape[-1:]).mul(scale).add(network[f"{name}.{i}.shift"]).relu()
    return x
