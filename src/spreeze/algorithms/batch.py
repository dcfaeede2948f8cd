"""The batch that one update learns from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class Batch(NamedTuple):
    """Transitions drawn from the replay."""

    observation: Tensor  # (batch, obs_dim)
    action: Tensor  # (batch, act_dim), in [-1, 1]; indices, int32, where actions are discrete
    reward: Tensor  # (batch,)
    next_observation: Tensor  # (batch, obs_dim)
    terminated: Tensor  # (batch,), 1 where nothing follows
    discount: Tensor  # (batch,)
