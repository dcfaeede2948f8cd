"""The few operations that all passes consist of, so that each can have more than one implementation.

`PLAIN` is PyTorch's own, on any device, and the reference for all others. `fused.py` has Triton kernels for GPUs,
`cpu.py` fewer calls for CPUs. Losses take the set they compute with as their last argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from spreeze.algorithms.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor

# Bounds of the log standard deviation (policy/actor.py acts with the same): exp(-5) is as good as deterministic, and
# exp(2) already saturates tanh.
LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0


class Adam:
    """What Adam (Kingma and Ba 2015) keeps of a flat buffer of parameters.

    Not torch.optim's: making one of those imports PyTorch's compiler, which takes longer than all else at the start.
    """

    BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8

    def __init__(self, flat: Tensor, learning_rate: float) -> None:
        self.flat, self.learning_rate = flat, learning_rate
        self.mean = torch.zeros_like(flat)
        self.square = torch.zeros_like(flat)
        self.steps = torch.zeros((), device=flat.device)

    @property
    def gradient(self) -> Tensor:
        """What backward() has left for the next step."""
        assert self.flat.grad is not None
        return self.flat.grad

    def state(self) -> list[Tensor]:
        """Return what a step changes besides the parameters."""
        return [self.mean, self.square, self.steps]


class Operations(NamedTuple):
    """One implementation of all operations."""

    name: str
    dense: Callable[[Tensor, Tensor, Tensor, bool], Tensor]
    """x W + b, and a ReLU if asked for. x (batch, in), W (in, out); or a batched product for W (twins, in, out) and
    b (twins, 1, out), where x may be shared by the twins."""
    squashed_gaussian: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    """Action and log pi of the actor's output (batch, 2 act_dim) and noise (batch, act_dim): see `sample_action`."""
    soft_bootstrap: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
    """reward + discount (1 - terminated) (min_i q_i - alpha log_pi) of q (twins, batch), log_pi, log alpha, reward,
    discount and terminated. Without gradient."""
    squared_error: Callable[[Tensor, Tensor], Tensor]
    """sum_i mean 1/2 (q_i - target)^2 of q (twins, batch) and target (batch,)."""
    soft_objective: Callable[[Tensor, Tensor, Tensor], Tensor]
    """mean (alpha log_pi - min_i q_i) of q (twins, batch), log_pi and log alpha, which gets no gradient."""
    adam: Callable[[Adam], None]
    """One step of the optimiser."""
    network: Callable[[Tensor, Sequence[Tensor]], Tensor] | None = None
    """All layers at once, of weights and biases in turn, with a ReLU after each but the last, where that is cheaper
    than `dense` one by one. None: it is not, or is not known."""


def dense(x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    """Return x W + b, with a ReLU if asked for."""
    if weight.dim() == 2:
        output = torch.addmm(bias, x, weight)
    else:
        output = torch.baddbmm(bias, x.expand(len(weight), -1, -1), weight)
    return output.relu_() if relu else output


def squashed_gaussian(output: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return a = tanh(u), u = mean + std * noise, and log pi(a), (batch,).

    log pi(a) = log N(u; mean, std) - sum log(1 - tanh(u)^2)      (Haarnoja et al. 2018, appendix C)
    with log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)), which does not lose its digits for large |u|.
    """
    mean, log_std = split_gaussian(output)
    u = mean + log_std.exp() * noise
    log_normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
    log_derivative = 2 * (math.log(2) - u - torch.nn.functional.softplus(-2 * u))
    return u.tanh(), (log_normal - log_derivative).sum(-1)


def split_gaussian(output: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and log standard deviation, within its bounds, of the actor's output."""
    mean, log_std = output.chunk(2, dim=-1)
    return mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)


def soft_bootstrap(
    q: Tensor, log_pi: Tensor, log_temperature: Tensor, reward: Tensor, discount: Tensor, terminated: Tensor
) -> Tensor:
    """Return reward + discount (1 - terminated) (min_i q_i - alpha log_pi)."""
    return reward + discount * (1 - terminated) * (q.amin(0) - log_temperature.exp() * log_pi)


def squared_error(q: Tensor, target: Tensor) -> Tensor:
    """Return sum_i mean 1/2 (q_i - target)^2."""
    return 0.5 * (q - target).square().mean(-1).sum()


def soft_objective(q: Tensor, log_pi: Tensor, log_temperature: Tensor) -> Tensor:
    """Return mean (alpha log_pi - min_i q_i)."""
    return (log_temperature.exp() * log_pi - q.amin(0)).mean()


def adam(optimiser: Adam) -> None:
    """Take one step, with the operation that torch.optim.Adam(fused=True) uses."""
    optimiser.steps.add_(1)
    torch._fused_adam_(
        [optimiser.flat],
        [optimiser.gradient],
        [optimiser.mean],
        [optimiser.square],
        [],
        [optimiser.steps],
        lr=optimiser.learning_rate,
        beta1=Adam.BETA1,
        beta2=Adam.BETA2,
        weight_decay=0.0,
        eps=Adam.EPSILON,
        amsgrad=False,
        maximize=False,
    )


PLAIN = Operations("plain", dense, squashed_gaussian, soft_bootstrap, squared_error, soft_objective, adam)
