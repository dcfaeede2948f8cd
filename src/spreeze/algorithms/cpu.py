"""The operations for a CPU that multiplies bfloat16 (AVX512-BF16, AMX), where that is twice as fast as float32.

As on a GPU: factors of the hidden layers' products are rounded to bfloat16 and so are activations, sums and all
parameters are float32, and gradients of parameters go straight into their buffers. The critics' last layer, a single
column, is a product of a matrix and a vector. On other processors bfloat16 is slow: the learner finds out by trying.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spreeze.algorithms.operations import PLAIN, Operations

NARROW = 64  # below this many inputs or outputs, a product gains nothing from rounding: it stays float32


class _Dense(torch.autograd.Function):
    """A layer. What a ReLU leaves is for the next product, and rounded for it here already."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        # What was not rounded before is an observation or an action, and keeps its digits.
        ctx.is_rounded = x.dtype == torch.bfloat16 and min(weight.shape[-2:]) >= NARROW
        y = _affine(x, weight, bias) if ctx.is_rounded else _product(x, weight, False) + bias
        y = y.relu_().bfloat16() if relu else y.float()
        ctx.save_for_backward(x, weight, bias, y)
        ctx.relu = relu
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, None, None, None]:
        x, weight, bias, y = ctx.saved_tensors
        dz = torch.ops.aten.threshold_backward(dy.contiguous(), y, 0.0) if ctx.relu else dy
        dx: Tensor | None = None
        if ctx.needs_input_grad[0]:
            dx = _product(dz, weight.mT, ctx.is_rounded).to(x.dtype)
            if dx.dim() > x.dim():  # shared by the twins: gradients of both add up
                dx = dx.sum(0)
        if ctx.needs_input_grad[1]:
            weight.grad += _product(x.mT, dz, ctx.is_rounded)
            bias.grad += torch.sum(dz, -2, keepdim=bias.dim() > 1, dtype=torch.float32)
        return dx, None, None, None


def _affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    # With the bias inside: it is added before the sum is rounded.
    if weight.dim() == 2:
        return torch.addmm(bias.bfloat16(), x, weight.bfloat16())
    return torch.baddbmm(bias.bfloat16(), x, weight.bfloat16())


def _product(left: Tensor, right: Tensor, is_rounded: bool) -> Tensor:
    """Multiply matrices, or pairs of them, of which one may be shared by the twins."""
    dtype = torch.bfloat16 if is_rounded else torch.float32
    left, right = left.to(dtype), right.to(dtype)
    inner, columns = right.shape[-2:]
    if columns == 1:
        if left.dim() == right.dim() == 2:
            return torch.mv(left, right[:, 0]).unsqueeze(-1)
        twins = max(len(x) for x in (left, right) if x.dim() == 3)
        return torch.stack([_product(_of_twin(left, i), _of_twin(right, i), is_rounded) for i in range(twins)])
    return left * right if inner == 1 else torch.matmul(left, right)


def _of_twin(x: Tensor, twin: int) -> Tensor:
    return x[twin] if x.dim() == 3 else x


CPU: Operations = PLAIN._replace(name="bfloat16", dense=_Dense.apply)
