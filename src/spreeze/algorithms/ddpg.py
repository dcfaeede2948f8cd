"""Deep deterministic policy gradient.

Lillicrap et al., "Continuous Control with Deep Reinforcement Learning", 2015 (arXiv 1509.02971); equation numbers are
that paper's. What it explores with is the samplers' noise.

An update, in this order (`ActorCritic.update`):

    1. target actor: mu' <- (1 - tau) mu' + tau mu, after each step of the actor
    2. critic:       y = r + discount (1 - terminated) Q'(s', mu'(s'))
                     descend L = E[ 1/2 (Q(s, a) - y)^2 ]                                         (4), (5)
    3. actor:        descend J = -E[ Q(s, mu(s)) ]                                                (6)
    4. target critic: Q' <- (1 - tau) Q' + tau Q, after each step of the actor

docs/algorithms/ddpg.md explains the figures and lists what differs from the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spreeze.algorithms.actor_critic import ActorCritic
from spreeze.algorithms.algorithm import Terms
from spreeze.algorithms.batch import Batch
from spreeze.algorithms.critics import values
from spreeze.algorithms.distributional import Distribution
from spreeze.algorithms.kernels.operations import PLAIN, Operations
from spreeze.algorithms.lazy_torch import torch
from spreeze.algorithms.networks import FlatParameters, Tensors, actor_shapes, deterministic_action
from spreeze.algorithms.spec import AlgorithmSpec, Figure

if TYPE_CHECKING:
    from torch import Tensor


class Ddpg(ActorCritic):
    """A deterministic actor and one critic, each with a target that follows it slowly."""

    policy_kind = "deterministic"
    critics = 1
    targets_follow_the_actor = True
    figures = (Figure("critic_loss", "critic"), Figure("actor_loss", "actor"), Figure("q_mean", "critic"))

    def __init__(self, spec: AlgorithmSpec) -> None:
        super().__init__(spec)
        shapes = actor_shapes(spec.observation_size, spec.action_size, spec.hidden)
        self.target_actor = FlatParameters(shapes, self.device)
        self.target_actor.flat.copy_(self.actor.flat)

    def next_action(self, observation: Tensor, _noise: Tensor) -> Tensor:
        """Return the action that the critics' targets are of: the target actor's.     (5)"""
        return self.deterministic_action(self.target_actor.frozen, observation)

    def update_critic(self, batch: Batch, noise: Tensor) -> Terms:
        """Take the critics' step. The target actor has followed the actor's last one before."""
        with torch.no_grad():
            # Here and not after the actor's step: where the actor learns elsewhere, this is when its step is known.
            if self.phase == 0:
                self.target_actor.flat.lerp_(self.actor.flat, self.tau)
            target = self.critic_target(batch, self.next_action(batch.next_observation, noise))
        loss, q = self.critic_loss(batch, target)
        self.descend("critic", self.critic, loss)
        return {"critic_loss": loss, "q_mean": q}

    def update_actor(self, batch: Batch, _noise: Tensor) -> Terms:
        """Take the actor's step."""
        loss = actor_loss(
            self.actor.trainable, self.critic.frozen, batch.observation, self.operations, self.distribution
        )
        self.descend("actor", self.actor, loss)
        return {"actor_loss": loss}

    def networks(self) -> list[FlatParameters]:
        """The target actor is one too."""
        return [*super().networks(), self.target_actor]


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
