"""Triton kernels: what runs on the GPU. `fused.py` calls them and says how they fit together.

Names in capitals are known when a kernel is compiled. B* are the sizes of the tile that one program computes.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def dense_forward(
    x, w, b, y, rows, ins, outs, x_twin, x_row,
    SPLIT: tl.constexpr, RELU: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y = x w + b for one tile of rows and outputs of one twin; x in two parts where it must keep its digits."""
    tiles = tl.cdiv(outs, BN)
    m = (tl.program_id(0) // tiles) * BM + tl.arange(0, BM)
    n = (tl.program_id(0) % tiles) * BN + tl.arange(0, BN)
    twin = tl.program_id(1)
    total = tl.zeros((BM, BN), tl.float32)
    for begin in range(0, ins, BK):
        k = begin + tl.arange(0, BK)
        x_tile = tl.load(
            x + twin * x_twin + m[:, None] * x_row + k[None, :],
            mask=(m < rows)[:, None] & (k < ins)[None, :],
            other=0.0,
        )
        w_tile = tl.load(
            w + twin * ins * outs + k[:, None] * outs + n[None, :],
            mask=(k < ins)[:, None] & (n < outs)[None, :],
            other=0.0,
        ).to(tl.bfloat16)
        high = x_tile.to(tl.bfloat16)
        total = tl.dot(high, w_tile, total)
        if SPLIT:
            total = tl.dot((x_tile - high.to(tl.float32)).to(tl.bfloat16), w_tile, total)
    total += tl.load(b + twin * outs + n, mask=n < outs, other=0.0)[None, :]
    if RELU:
        total = tl.maximum(total, 0.0)
    tl.store(
        y + twin * rows * outs + m[:, None] * outs + n[None, :],
        total,
        mask=(m < rows)[:, None] & (n < outs)[None, :],
    )


@triton.jit
def dense_input_gradient(
    dy, y, w, dx, rows, ins, outs, twins,
    RELU: tl.constexpr, SUM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """dx = dz w^T, dz = dy where y > 0; summed over the twins if they share their input."""
    tiles = tl.cdiv(ins, BK)
    m = (tl.program_id(0) // tiles) * BM + tl.arange(0, BM)
    k = (tl.program_id(0) % tiles) * BK + tl.arange(0, BK)
    first = 0 if SUM else tl.program_id(1)
    count = twins if SUM else 1
    total = tl.zeros((BM, BK), tl.float32)
    for twin in range(first, first + count):
        for begin in range(0, outs, BN):
            n = begin + tl.arange(0, BN)
            at = twin * rows * outs + m[:, None] * outs + n[None, :]
            inside = (m < rows)[:, None] & (n < outs)[None, :]
            dz = tl.load(dy + at, mask=inside, other=0.0)
            if RELU:
                dz = tl.where(tl.load(y + at, mask=inside, other=0.0) > 0, dz, 0.0)
            w_tile = tl.load(
                w + twin * ins * outs + k[None, :] * outs + n[:, None],
                mask=(k < ins)[None, :] & (n < outs)[:, None],
                other=0.0,
            )
            total = tl.dot(dz.to(tl.bfloat16), w_tile.to(tl.bfloat16), total)
    tl.store(
        dx + first * rows * ins + m[:, None] * ins + k[None, :],
        total,
        mask=(m < rows)[:, None] & (k < ins)[None, :],
    )


@triton.jit
def dense_weight_gradient(
    x, dy, y, dw, db, rows, ins, outs, x_twin, x_row, piece_rows,
    RELU: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """dw += x^T dz and db += sum dz over one piece of the batch, dz = dy where y > 0."""
    tiles = tl.cdiv(outs, BN)
    k = (tl.program_id(0) // tiles) * BK + tl.arange(0, BK)
    n = (tl.program_id(0) % tiles) * BN + tl.arange(0, BN)
    piece, twin = tl.program_id(1), tl.program_id(2)
    total = tl.zeros((BK, BN), tl.float32)
    bias_total = tl.zeros((BN,), tl.float32)
    for begin in range(piece * piece_rows, tl.minimum(rows, (piece + 1) * piece_rows), BM):
        m = begin + tl.arange(0, BM)
        x_tile = tl.load(
            x + twin * x_twin + m[:, None] * x_row + k[None, :],
            mask=(m < rows)[:, None] & (k < ins)[None, :],
            other=0.0,
        )
        at = twin * rows * outs + m[:, None] * outs + n[None, :]
        inside = (m < rows)[:, None] & (n < outs)[None, :]
        dz = tl.load(dy + at, mask=inside, other=0.0)
        if RELU:
            dz = tl.where(tl.load(y + at, mask=inside, other=0.0) > 0, dz, 0.0)
        total = tl.dot(tl.trans(x_tile.to(tl.bfloat16)), dz.to(tl.bfloat16), total)
        bias_total += tl.sum(dz.to(tl.float32), axis=0)
    tl.atomic_add(
        dw + twin * ins * outs + k[:, None] * outs + n[None, :],
        total,
        mask=(k < ins)[:, None] & (n < outs)[None, :],
        sem="relaxed",
    )
    if tl.program_id(0) // tiles == 0:
        tl.atomic_add(db + twin * outs + n, bias_total, mask=n < outs, sem="relaxed")


@triton.jit
def soft_bootstrap(
    q, log_pi, log_temperature, reward, discount, terminated, target, rows, stride,
    BLOCK: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = r < rows
    smaller = tl.minimum(tl.load(q + r, mask=inside), tl.load(q + rows + r, mask=inside))
    value = smaller - tl.exp(tl.load(log_temperature)) * tl.load(log_pi + r, mask=inside)
    follows = tl.load(discount + r * stride, mask=inside) * (1 - tl.load(terminated + r * stride, mask=inside))
    tl.store(target + r, tl.load(reward + r * stride, mask=inside) + follows * value, mask=inside)


@triton.jit
def squared_error(q, target, dq, loss, rows, scale, CRITICS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = r < rows
    y = tl.load(target + r, mask=inside, other=0.0)
    squares = tl.zeros((BLOCK,), tl.float32)
    for critic in tl.static_range(CRITICS):
        error = tl.load(q + critic * rows + r, mask=inside, other=0.0) - y
        tl.store(dq + critic * rows + r, error * scale, mask=inside)
        squares += error * error
    tl.store(loss + tl.program_id(0), tl.sum(squares, axis=0) * (0.5 * scale))


@triton.jit
def soft_objective(
    q, log_pi, log_temperature, dq, d_log_pi, loss, rows, scale, BLOCK: tl.constexpr
):  # fmt: skip
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = r < rows
    temperature = tl.exp(tl.load(log_temperature))
    first, second = tl.load(q + r, mask=inside, other=0.0), tl.load(q + rows + r, mask=inside, other=0.0)
    # Where both are equal the gradient goes to both halves, as that of amin does.
    share = tl.where(first < second, 1.0, tl.where(first > second, 0.0, 0.5))
    tl.store(dq + r, -share * scale, mask=inside)
    tl.store(dq + rows + r, (share - 1) * scale, mask=inside)
    tl.store(d_log_pi + r, tl.where(inside, temperature * scale, 0.0), mask=inside)
    terms = temperature * tl.load(log_pi + r, mask=inside, other=0.0) - tl.minimum(first, second)
    tl.store(loss + tl.program_id(0), tl.sum(tl.where(inside, terms, 0.0), axis=0) * scale)


@triton.jit
def gaussian_forward(
    output, noise, action, log_pi, rows, acts,
    LOW: tl.constexpr, HIGH: tl.constexpr, C1: tl.constexpr, C2: tl.constexpr, BR: tl.constexpr, BA: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    a = tl.arange(0, BA)
    inside = (r < rows)[:, None] & (a < acts)[None, :]
    at = r[:, None] * (2 * acts) + a[None, :]
    mean = tl.load(output + at, mask=inside, other=0.0)
    log_std = tl.minimum(tl.maximum(tl.load(output + at + acts, mask=inside, other=0.0), LOW), HIGH)
    drawn = tl.load(noise + r[:, None] * acts + a[None, :], mask=inside, other=0.0)
    u = mean + tl.exp(log_std) * drawn
    shrunk = tl.exp(-2 * tl.abs(u))
    squashed = tl.where(u < 0, -1.0, 1.0) * (1 - shrunk) / (1 + shrunk)
    softplus = tl.maximum(-2 * u, 0.0) + tl.log(1 + shrunk)  # of -2u
    terms = -0.5 * drawn * drawn - log_std - C1 - 2 * (C2 - u - softplus)
    tl.store(action + r[:, None] * acts + a[None, :], squashed, mask=inside)
    tl.store(log_pi + r, tl.sum(tl.where(inside, terms, 0.0), axis=1), mask=r < rows)


@triton.jit
def gaussian_gradient(
    output, noise, action, d_action, d_log_pi, d_output, rows, acts,
    LOW: tl.constexpr, HIGH: tl.constexpr, BR: tl.constexpr, BA: tl.constexpr,
):  # fmt: skip
    """With d log pi / du = 2 tanh(u): d mean = du, d log_std = du std noise - d log pi, within the bounds."""
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    a = tl.arange(0, BA)
    inside = (r < rows)[:, None] & (a < acts)[None, :]
    at = r[:, None] * (2 * acts) + a[None, :]
    own = r[:, None] * acts + a[None, :]
    raw = tl.load(output + at + acts, mask=inside, other=0.0)
    log_std = tl.minimum(tl.maximum(raw, LOW), HIGH)
    spread = tl.exp(log_std) * tl.load(noise + own, mask=inside, other=0.0)
    squashed = tl.load(action + own, mask=inside, other=0.0)
    of_action = tl.load(d_action + own, mask=inside, other=0.0)
    of_log_pi = tl.load(d_log_pi + r, mask=r < rows, other=0.0)[:, None]
    du = of_action * (1 - squashed * squashed) + of_log_pi * 2 * squashed
    d_log_std = tl.where((raw >= LOW) & (raw <= HIGH), du * spread - of_log_pi, 0.0)
    tl.store(d_output + at, du, mask=inside)
    tl.store(d_output + at + acts, d_log_std, mask=inside)


@triton.jit
def adam_step(
    p, g, m, v, step, count, rate, eps, LOG_BETA1: tl.constexpr, LOG_BETA2: tl.constexpr,
    BETA1: tl.constexpr, BETA2: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    t = tl.load(step)
    gradient = tl.load(g + i, mask=inside, other=0.0)
    mean = BETA1 * tl.load(m + i, mask=inside, other=0.0) + (1 - BETA1) * gradient
    square = BETA2 * tl.load(v + i, mask=inside, other=0.0) + (1 - BETA2) * gradient * gradient
    tl.store(m + i, mean, mask=inside)
    tl.store(v + i, square, mask=inside)
    mean_scale = 1 / (1 - tl.exp(LOG_BETA1 * t))
    square_scale = 1 / (1 - tl.exp(LOG_BETA2 * t))
    moved = rate * mean * mean_scale / (tl.sqrt(square * square_scale) + eps)
    tl.store(p + i, tl.load(p + i, mask=inside, other=0.0) - moved, mask=inside)
