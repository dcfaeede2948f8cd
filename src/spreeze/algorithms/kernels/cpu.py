"""The operations for a CPU that multiplies bfloat16 (AVX512-BF16, AMX), where that is twice as fast as float32.

As on a GPU: factors of the hidden layers' products are rounded to bfloat16, and so are their results, after sums in
float32; parameters, and what their gradients are added to, are float32. A network is one step for autograd, with its
gradient written out, because at small batches PyTorch's housekeeping costs as much as products do. A critic's last
layer, a single column, is multiplied as a row: products of one column are slow. So is bfloat16 on other processors:
the learner finds out by trying.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from spreeze.algorithms.kernels.operations import PLAIN, Operations

NARROW = 64  # below this many inputs or outputs, a product gains nothing from rounding: it stays float32


class _Network(torch.autograd.Function):
    """A network whose gradient is wanted: that of its parameters, of its input or of both."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *parameters: Tensor) -> Tensor:
        ctx.factors = []
        ctx.save_for_backward(*parameters)
        return _forward(x, parameters, ctx.factors)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        wants_dx, wants_parameters, *_ = ctx.needs_input_grad
        dx = _backward(dy, ctx.saved_tensors, ctx.factors, wants_dx, wants_parameters)
        return dx, *(None for _ in ctx.saved_tensors)


_with_gradient: Callable[..., Tensor] = _Network.apply


def _network(x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    if torch.is_grad_enabled() and (x.requires_grad or parameters[0].requires_grad):
        return _with_gradient(x, *parameters)
    return _forward(x, parameters, [])


def _forward(x: Tensor, parameters: Sequence[Tensor], factors: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Return what the network gives; leave the factors of each layer's product for `_backward`."""
    for i in range(0, len(parameters), 2):
        weight, bias = parameters[i], parameters[i + 1]
        # What comes first is an observation or an action, and keeps its digits.
        if i and min(weight.shape[-2:]) >= NARROW:
            x, weight, bias = x.bfloat16(), weight.bfloat16(), bias.bfloat16()
        else:
            x = x.float()
        factors.append((x, weight))
        if weight.dim() == 2:
            x = torch.addmm(bias, x, weight)
        elif weight.shape[-1] == 1:
            x = torch.bmm(weight.mT, x.expand(len(weight), -1, -1).mT).add_(bias).mT
        else:
            x = torch.baddbmm(bias, x.expand(len(weight), -1, -1), weight)
        if i < len(parameters) - 2:
            x.relu_()
    return x.float()


def _backward(
    dy: Tensor,
    parameters: Sequence[Tensor],
    factors: Sequence[tuple[Tensor, Tensor]],
    wants_dx: bool,
    wants_parameters: bool,
) -> Tensor | None:
    """Add the parameters' gradients to those that are there; return the input's."""
    for i in reversed(range(len(factors))):
        x, weight = factors[i]
        dy = dy.to(x.dtype)
        if wants_parameters:
            weight_gradient, bias_gradient = parameters[2 * i].grad, parameters[2 * i + 1].grad
            assert weight_gradient is not None
            assert bias_gradient is not None
            _add_product(weight_gradient, x, dy)
            bias_gradient += dy.sum(-2, keepdim=bias_gradient.dim() > 1, dtype=torch.float32)
        if not i and not wants_dx:
            return None
        dy = dy * weight.mT if weight.shape[-1] == 1 else torch.matmul(dy, weight.mT)
        if i:
            dy = torch.ops.aten.threshold_backward(dy, x, 0.0)  # x is what the ReLU before has left
    return dy.sum(0) if dy.dim() > factors[0][0].dim() else dy  # shared by the twins: gradients of both add up


def _add_product(total: Tensor, x: Tensor, dy: Tensor) -> None:
    """Add x^T dy."""
    if total.dim() == 3:
        x = x.expand(len(total), -1, -1)
        if total.shape[-1] == 1:
            total += torch.bmm(dy.mT, x).mT
            return
    if x.dtype != total.dtype:
        total += torch.matmul(x.mT, dy)
    elif total.dim() == 2:
        total.addmm_(x.mT, dy)
    else:
        total.baddbmm_(x.mT, dy)


CPU: Operations = PLAIN._replace(name="bfloat16", network=_network)
