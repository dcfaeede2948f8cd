"""Twin delayed deep deterministic policy gradient: DDPG with three remedies for values that are too high.

Fujimoto et al., "Addressing Function Approximation Error in Actor-Critic Methods", 2018 (arXiv 1802.09477); equation
numbers are that paper's. Delayed policy updates, its third remedy, are `actor_delay`: see `ActorCritic.update`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from torch import Tensor

from spreeze.algorithms.ddpg import Ddpg
from spreeze.algorithms.kernels.operations import PLAIN, Operations
from spreeze.algorithms.networks import Tensors, deterministic_action


def smoothed_action(
    actor: Tensors, observation: Tensor, noise: Tensor, std: float, clip: float, operations: Operations = PLAIN
) -> Tensor:
    """a = mu(s) + eps within [-1, 1], eps ~ clip(N(0, std), -clip, clip): actions nearby are alike.     (15)"""
    eps = (std * noise).clamp(-clip, clip)
    return (deterministic_action(actor, observation, operations) + eps).clamp(-1, 1)


class Td3(Ddpg):
    """Two critics, of which the smaller value counts (10), and a target that is smooth in the action."""

    critics = 2

    def __init__(self, *sizes: Any, target_noise: float, target_noise_clip: float, **shared: Any) -> None:
        super().__init__(*sizes, **shared)
        self.target_noise, self.target_noise_clip = target_noise, target_noise_clip

    @classmethod
    def of(cls, settings: Mapping[str, Any], obs_dim: int, act_dim: int, **shared: Any) -> Self:
        """Return an untrained algorithm."""
        return cls(
            obs_dim,
            act_dim,
            settings["hidden"],
            target_noise=settings["target_noise"],
            target_noise_clip=settings["target_noise_clip"],
            **shared,
        )

    def settings(self) -> dict[str, Any]:
        """Return what the constructor takes besides the settings of all algorithms."""
        return {"target_noise": self.target_noise, "target_noise_clip": self.target_noise_clip}

    def next_action(self, observation: Tensor, noise: Tensor) -> Tensor:
        """Return the action that the critics' targets are of: the target actor's, smoothed.     (15)"""
        return smoothed_action(
            self.target_actor.frozen, observation, noise, self.target_noise, self.target_noise_clip, self.operations
        )
