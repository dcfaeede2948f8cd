"""Deep deterministic policy gradient.

Lillicrap et al., "Continuous Control with Deep Reinforcement Learning", 2015 (arXiv 1509.02971); equation numbers are
that paper's. What it explores with is the samplers' noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

from spreeze.algorithms.actor_critic import ActorCritic, ActorTerms
from spreeze.algorithms.batch import Batch
from spreeze.algorithms.critics import critic_loss, values
from spreeze.algorithms.distributional import Distribution
from spreeze.algorithms.kernels.operations import PLAIN, Operations
from spreeze.algorithms.networks import FlatParameters, Tensors, actor_shapes, deterministic_action, twin_outputs


def bootstrap(batch: Batch, q: Tensor) -> Tensor:
    """y = r + discount (1 - terminated) min_i q_i, of q (critics, batch).     (4), (5)

    A truncated episode is not terminated: it bootstraps from its last observation.
    """
    return batch.reward + batch.discount * (1 - batch.terminated) * q.amin(0)


def actor_loss(
    actor: Tensors,
    critic: Tensors,
    observation: Tensor,
    operations: Operations = PLAIN,
    distribution: Distribution | None = None,
) -> Tensor:
    """J = -E[ Q_1(s, mu(s)) ], whose gradient is the deterministic policy gradient.     (6)"""
    first = {name: tensor[:1] for name, tensor in critic.items()}
    action = deterministic_action(actor, observation, operations)
    return -values(first, observation, action, operations, distribution).mean()


class Ddpg(ActorCritic):
    """A deterministic actor and one critic, each with a target that follows it slowly."""

    policy_kind = "deterministic"
    critics = 1
    targets_follow_the_actor = True

    def __init__(self, *sizes: Any, **shared: Any) -> None:
        super().__init__(*sizes, **shared)
        self.target_actor = FlatParameters(actor_shapes(self.obs_dim, self.act_dim, self.hidden), self.device)
        self.target_actor.flat.copy_(self.actor.flat)

    @classmethod
    def of(cls, settings: Mapping[str, Any], obs_dim: int, act_dim: int, **shared: Any) -> Self:
        """Return an untrained algorithm."""
        return cls(obs_dim, act_dim, settings["hidden"], **shared)

    def settings(self) -> dict[str, Any]:
        """There are none besides those of all algorithms."""
        return {}

    def next_action(self, observation: Tensor, _noise: Tensor) -> Tensor:
        """Return the action that the critics' targets are of: the target actor's.     (5)"""
        return deterministic_action(self.target_actor.frozen, observation, self.operations)

    def update_critic(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Take the critics' step. The target actor has followed the actor's last one before."""
        with torch.no_grad():
            # Here and not after the actor's step: where the actor learns elsewhere, this is when its step is known.
            if self.phase == 0:
                self.target_actor.flat.lerp_(self.actor.flat, self.tau)
            action = self.next_action(batch.next_observation, noise)
            outputs = twin_outputs(self.target_critic.frozen, batch.next_observation, action, self.operations)
            if self.distribution is None:
                target = bootstrap(batch, outputs.squeeze(-1))
            else:
                target = self.distribution.target(outputs, batch)
        loss, q = critic_loss(self.critic.trainable, batch, target, self.operations, self.distribution)
        self.descend("critic", self.critic, loss)
        return loss.detach(), q

    def update_actor(self, batch: Batch, _noise: Tensor) -> ActorTerms:
        """Take the actor's step."""
        loss = actor_loss(
            self.actor.trainable, self.critic.frozen, batch.observation, self.operations, self.distribution
        )
        self.descend("actor", self.actor, loss)
        return ActorTerms(loss.detach(), self._none, self._none)

    def networks(self) -> list[FlatParameters]:
        """The target actor is one too."""
        return [*super().networks(), self.target_actor]
