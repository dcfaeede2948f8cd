"""Twin delayed deep deterministic policy gradient: DDPG with three remedies for values that are too high.

Fujimoto et al., "Addressing Function Approximation Error in Actor-Critic Methods", 2018 (arXiv 1802.09477); equation
numbers are that paper's.

An update is DDPG's (`ddpg.py` has its steps in order), with

    1. two critics, of which the smaller value counts:  y = r + discount (1 - terminated) min_i Q'_i(s', a')     (10)
    2. a target that is smooth in the action:           a' = mu'(s') + eps, eps ~ clip(N(0, std), -c, c)         (15)
    3. an actor and targets that move at every second:  `actor_delay`, in `ActorCritic.update`

docs/algorithms/td3.md explains the figures and lists what differs from the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from spreeze.algorithms.ddpg import Ddpg
from spreeze.algorithms.kernels.operations import PLAIN, Operations
from spreeze.algorithms.networks import Tensors, deterministic_action
from spreeze.algorithms.spec import Recipe

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Td3Settings:
    """The settings that only TD3 has."""

    target_noise: float = 0.2
    """Standard deviation of the noise on target actions."""
    target_noise_clip: float = 0.5
    """Maximum of the noise on target actions."""

    def __post_init__(self) -> None:
        for own in fields(self):
            if not 0 <= (value := getattr(self, own.name)) < math.inf:
                raise ValueError(f"--{own.name.replace('_', '-')} must be at least 0, not {value}")


class Td3(Ddpg):
    """Two critics, of which the smaller value counts (10), and a target that is smooth in the action."""

    Settings = Td3Settings
    settings: Td3Settings
    recipe = Recipe(actor_delay=2)
    critics = 2

    def next_action(self, observation: Tensor, noise: Tensor) -> Tensor:
        """Return the action that the critics' targets are of: the target actor's, smoothed.     (15)"""
        std, clip = self.settings.target_noise, self.settings.target_noise_clip
        return smoothed_action(self.target_actor.frozen, observation, noise, std, clip, self.operations)


def smoothed_action(
    actor: Tensors, observation: Tensor, noise: Tensor, std: float, clip: float, operations: Operations = PLAIN
) -> Tensor:
    """a = mu(s) + eps within [-1, 1], eps ~ clip(N(0, std), -clip, clip): actions nearby are alike.     (15)"""
    eps = (std * noise).clamp(-clip, clip)
    return (deterministic_action(actor, observation, operations) + eps).clamp(-1, 1)
