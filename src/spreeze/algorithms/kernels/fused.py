"""The operations as Triton kernels: a layer's product, bias and ReLU in one pass, and its gradients in two.

Factors are rounded to bfloat16 and products summed in float32; observations and actions enter in two parts, so that
they keep 16 bits. Parameters, optimisers, losses and what the last layers give are float32. Gradients of weights are
summed over many pieces of the batch at once, straight into the flat gradient buffer. Importing this needs Triton,
which comes with PyTorch's CUDA builds.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
from torch import Tensor

from spreeze.algorithms.kernels import triton_kernels
from spreeze.algorithms.kernels.operations import (
    LOG_STD_MAX,
    LOG_STD_MIN,
    Adam,
    Operations,
    soft_bootstrap,
    soft_objective,
)

LOG_2PI_HALF = 0.5 * math.log(2 * math.pi)
LOG_2 = math.log(2)


class _Dense(torch.autograd.Function):
    """A layer. Gradients of its parameters go straight into their .grad, a piece of the flat buffer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        twins = len(weight) if weight.dim() == 3 else 1
        ins, outs = weight.shape[-2:]
        rows = x.shape[-2]
        x_twin = x.stride(0) if x.dim() == 3 else 0
        shape = (twins, rows, outs) if weight.dim() == 3 else (rows, outs)
        # What a ReLU leaves is for the next product, and rounded for it here already: half the memory to move.
        y = torch.empty(shape, dtype=torch.bfloat16 if relu else torch.float32, device=x.device)
        bm, bn, bk, warps, stages = forward_tile(rows, ins, outs)
        triton_kernels.dense_forward[(triton.cdiv(rows, bm) * triton.cdiv(outs, bn), twins)](
            x, weight, bias, y, rows, ins, outs, x_twin, x.stride(-2), SPLIT=x.dtype == torch.float32,
            RELU=relu, BM=bm, BN=bn, BK=bk, num_warps=warps, num_stages=stages,
        )  # fmt: skip
        ctx.save_for_backward(x, weight, bias, y)
        ctx.relu, ctx.twins, ctx.x_twin = relu, twins, x_twin
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, None, None, None]:
        x, weight, bias, y = ctx.saved_tensors
        relu, twins = ctx.relu, ctx.twins
        ins, outs = weight.shape[-2:]
        rows = x.shape[-2]
        dy = dy.contiguous()
        dx: Tensor | None = None
        if ctx.needs_input_grad[0]:
            dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
            shared = x.dim() == 2 and twins > 1
            bm, bn, bk, warps, stages = input_tile(rows, ins, outs)
            grid = (triton.cdiv(rows, bm) * triton.cdiv(ins, bk), 1 if shared else twins)
            triton_kernels.dense_input_gradient[grid](
                dy, y, weight, dx, rows, ins, outs, twins,
                RELU=relu, SUM=shared, BM=bm, BN=bn, BK=bk, num_warps=warps, num_stages=stages,
            )  # fmt: skip
        if ctx.needs_input_grad[1]:
            bm, bn, bk, warps, stages = weight_tile(rows, ins, outs)
            tiles = triton.cdiv(ins, bk) * triton.cdiv(outs, bn)
            piece = piece_rows(rows, tiles * twins)
            triton_kernels.dense_weight_gradient[(tiles, triton.cdiv(rows, piece), twins)](
                x, dy, y, weight.grad, bias.grad, rows, ins, outs, ctx.x_twin, x.stride(-2), piece,
                RELU=relu, BM=bm, BN=bn, BK=bk, num_warps=warps, num_stages=stages,
            )  # fmt: skip
        return dx, None, None, None


# Tiles, found by sweeps on an H200: rows, outputs, inputs, warps, stages.
Tile = tuple[int, int, int, int, int]
SMALL_BATCH, LARGE_BATCH = 1024, 8192  # with fewer rows, large tiles do not fill the GPU
NARROW = 64  # a layer with fewer inputs or outputs than this is bound by memory, not by products
PROGRAMS = 256  # that a weight's gradient is spread over: about two for each multiprocessor of a large GPU


def _wide(size: int, most: int) -> int:
    return int(min(most, max(16, triton.next_power_of_2(size))))


def forward_tile(rows: int, ins: int, outs: int) -> Tile:
    """Tile of the forward product."""
    if rows <= SMALL_BATCH:
        return 16, _wide(outs, 64), _wide(ins, 64), 4, 3
    if outs <= NARROW:
        return 64, _wide(outs, NARROW), _wide(ins, 256), 4, 1
    if ins <= NARROW:
        return 128, _wide(outs, 256), _wide(ins, NARROW), 8, 1
    return 128, _wide(outs, 256 if rows >= LARGE_BATCH else 128), 64, 8, 3


def input_tile(rows: int, ins: int, outs: int) -> Tile:
    """Tile of the gradient of the input."""
    if rows <= SMALL_BATCH:
        return 16, _wide(outs, 64), _wide(ins, 64), 4, 3
    if outs <= NARROW:
        return 64, _wide(outs, NARROW), _wide(ins, 128), 4, 1
    return 128, 64, _wide(ins, 256 if rows >= LARGE_BATCH else 128), 8, 3


def weight_tile(rows: int, ins: int, outs: int) -> Tile:
    """Tile of the gradient of the weights; its rows are those of one step of the sum."""
    if rows <= SMALL_BATCH:
        return 64, _wide(outs, 64), _wide(ins, 64), 4, 3
    if outs <= NARROW:
        return 64, _wide(outs, NARROW), _wide(ins, 256), 4, 3
    if ins <= NARROW:
        return 64, _wide(outs, 128), _wide(ins, NARROW), 4, 3
    return 64, 64, 128, 4, 3


def piece_rows(rows: int, tiles: int) -> int:
    """Rows of the batch that one program sums a weight's gradient over."""
    return int(max(64, triton.next_power_of_2(triton.cdiv(rows * tiles, PROGRAMS))))


# --- tails: what comes after the last layer ---------------------------------------------------------------------

KERNEL_CRITICS = (
    2  # that the kernels take the smaller value of; an algorithm of another number has PyTorch's operations
)


def _soft_bootstrap(
    q: Tensor, log_pi: Tensor, log_temperature: Tensor, reward: Tensor, discount: Tensor, terminated: Tensor
) -> Tensor:
    if len(q) != KERNEL_CRITICS:
        return soft_bootstrap(q, log_pi, log_temperature, reward, discount, terminated)
    target = torch.empty_like(log_pi)
    rows = len(target)
    assert reward.stride(0) == discount.stride(0) == terminated.stride(0), "columns of one batch of rows"
    triton_kernels.soft_bootstrap[(triton.cdiv(rows, TAIL_ROWS),)](
        q.contiguous(), log_pi, log_temperature, reward, discount, terminated, target, rows, reward.stride(0),
        BLOCK=TAIL_ROWS,
    )  # fmt: skip
    return target


class _SquaredError(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, target: Tensor) -> Tensor:
        rows = len(target)
        programs = triton.cdiv(rows, TAIL_ROWS)
        dq, parts = torch.empty(q.shape, device=q.device), target.new_empty(programs)
        triton_kernels.squared_error[(programs,)](
            q.contiguous(), target.contiguous(), dq, parts, rows, 1 / rows, CRITICS=len(q), BLOCK=TAIL_ROWS
        )
        ctx.save_for_backward(dq)
        return parts.sum()

    @staticmethod
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor, None]:
        (dq,) = ctx.saved_tensors
        return dq * d_loss, None


class _SoftObjective(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, log_pi: Tensor, log_temperature: Tensor) -> Tensor:
        rows = len(log_pi)
        programs = triton.cdiv(rows, TAIL_ROWS)
        dq, d_log_pi, parts = torch.empty(q.shape, device=q.device), torch.empty_like(log_pi), q.new_empty(programs)
        triton_kernels.soft_objective[(programs,)](
            q.contiguous(), log_pi, log_temperature, dq, d_log_pi, parts, rows, 1 / rows, BLOCK=TAIL_ROWS
        )
        ctx.save_for_backward(dq, d_log_pi)
        return parts.sum()

    @staticmethod
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor, Tensor, None]:
        dq, d_log_pi = ctx.saved_tensors
        return dq * d_loss, d_log_pi * d_loss, None


def _soft_objective(q: Tensor, log_pi: Tensor, log_temperature: Tensor) -> Tensor:
    if len(q) != KERNEL_CRITICS:
        return soft_objective(q, log_pi, log_temperature)
    loss: Tensor = _SoftObjective.apply(q, log_pi, log_temperature)  # type: ignore[no-untyped-call]
    return loss


TAIL_ROWS = 256


GAUSSIAN_ROWS = 64


class _SquashedGaussian(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, output: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        rows, acts = noise.shape
        output, noise = output.contiguous(), noise.contiguous()
        action, log_pi = torch.empty_like(noise), noise.new_empty(rows)
        triton_kernels.gaussian_forward[(triton.cdiv(rows, GAUSSIAN_ROWS),)](
            output, noise, action, log_pi, rows, acts, LOW=LOG_STD_MIN, HIGH=LOG_STD_MAX,
            C1=LOG_2PI_HALF, C2=LOG_2, BR=GAUSSIAN_ROWS, BA=triton.next_power_of_2(acts),
        )  # fmt: skip
        ctx.save_for_backward(output, noise, action)
        return action, log_pi

    @staticmethod
    def backward(ctx: Any, d_action: Tensor, d_log_pi: Tensor) -> tuple[Tensor, None]:
        output, noise, action = ctx.saved_tensors
        rows, acts = noise.shape
        d_output = torch.empty_like(output)
        triton_kernels.gaussian_gradient[(triton.cdiv(rows, GAUSSIAN_ROWS),)](
            output, noise, action, d_action.contiguous(), d_log_pi.contiguous(), d_output, rows, acts,
            LOW=LOG_STD_MIN, HIGH=LOG_STD_MAX, BR=GAUSSIAN_ROWS, BA=triton.next_power_of_2(acts),
        )  # fmt: skip
        return d_output, None


ADAM_BLOCK = 1024


def _adam(optimiser: Adam) -> None:
    """One launch over the whole buffer."""
    optimiser.steps.add_(1)
    count = optimiser.flat.numel()
    triton_kernels.adam_step[(triton.cdiv(count, ADAM_BLOCK),)](
        optimiser.flat, optimiser.gradient, optimiser.mean, optimiser.square, optimiser.steps, count,
        optimiser.learning_rate, Adam.EPSILON, LOG_BETA1=math.log(Adam.BETA1), LOG_BETA2=math.log(Adam.BETA2),
        BETA1=Adam.BETA1, BETA2=Adam.BETA2, BLOCK=ADAM_BLOCK,
    )  # fmt: skip


FUSED = Operations(
    "fused", _Dense.apply, _SquashedGaussian.apply, _soft_bootstrap, _SquaredError.apply, _soft_objective, _adam
)
