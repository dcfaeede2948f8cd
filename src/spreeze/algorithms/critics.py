"""What all algorithms do with their critics: read values, and bring them nearer to a target.

A critic gives a value, or with a `Distribution` the logits of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spreeze.algorithms.batch import Batch
from spreeze.algorithms.distributional import Distribution
from spreeze.algorithms.kernels.operations import PLAIN, Operations
from spreeze.algorithms.networks import Tensors, twin_outputs, twin_q

if TYPE_CHECKING:
    from torch import Tensor


def values(
    critic: Tensors,
    observation: Tensor,
    action: Tensor,
    operations: Operations = PLAIN,
    distribution: Distribution | None = None,
) -> Tensor:
    """Return Q_i(s, a), or the mean of its distribution, (critics, batch)."""
    if distribution is None:
        return twin_q(critic, observation, action, operations)
    return distribution.mean(twin_outputs(critic, observation, action, operations))


def critic_target(
    target_critic: Tensors,
    batch: Batch,
    next_action: Tensor,
    bonus: Tensor | None = None,
    operations: Operations = PLAIN,
    distribution: Distribution | None = None,
) -> Tensor:
    """y = r + discount (1 - terminated) (min_i Q'_i(s', a') + bonus), (batch,), or its distribution, (batch, atoms).

    A truncated episode is not terminated: it bootstraps from its last observation.
    """
    outputs = twin_outputs(target_critic, batch.next_observation, next_action, operations)
    if distribution is not None:
        return distribution.target(outputs, batch, bonus)
    return bootstrap(batch, outputs.squeeze(-1), bonus)


def bootstrap(batch: Batch, q: Tensor, bonus: Tensor | None = None) -> Tensor:
    """y = r + discount (1 - terminated) (min_i q_i + bonus), of q (critics, batch) and bonus (batch,)."""
    value = q.amin(0) if bonus is None else q.amin(0) + bonus
    return batch.reward + batch.discount * (1 - batch.terminated) * value


def critic_loss(
    critic: Tensors,
    batch: Batch,
    target: Tensor,
    operations: Operations = PLAIN,
    distribution: Distribution | None = None,
) -> tuple[Tensor, Tensor]:
    """J_Q = sum_i E[ 1/2 (Q_i(s, a) - y)^2 ], or the cross entropy of distributions, and Q, (critics, batch)."""
    if distribution is None:
        q = twin_q(critic, batch.observation, batch.action, operations)
        return operations.squared_error(q, target), q.detach()
    logits = twin_outputs(critic, batch.observation, batch.action, operations)
    return distribution.cross_entropy(logits, target), distribution.mean(logits.detach())
