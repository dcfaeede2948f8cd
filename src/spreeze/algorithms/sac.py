"""Soft actor-critic with automatic temperature.

Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018 (arXiv 1812.05905); equation numbers are
that paper's. Twin critics take the smaller value (Fujimoto et al. 2018), in the target and for the actor.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from spreeze.algorithms.batch import Batch
from spreeze.algorithms.networks import (
    FlatParameters,
    Tensors,
    actor_shapes,
    critic_shapes,
    initialise,
    sample_action,
    twin_q,
)


class Losses(NamedTuple):
    """What one update reports, each a scalar tensor that nobody has to read."""

    critic_loss: Tensor
    actor_loss: Tensor
    temperature_loss: Tensor
    temperature: Tensor
    q_mean: Tensor
    entropy: Tensor


def soft_target(
    target_critic: Tensors, actor: Tensors, log_temperature: Tensor, batch: Batch, noise: Tensor
) -> Tensor:
    """y = r + discount (1 - terminated) (min_i Q'_i(s', a') - alpha log pi(a'|s')), a' ~ pi(s').     (2), (3), (5)

    A truncated episode is not terminated: it bootstraps from its last observation.
    """
    next_action, log_pi = sample_action(actor, batch.next_observation, noise)
    soft_value = twin_q(target_critic, batch.next_observation, next_action).amin(0) - log_temperature.exp() * log_pi
    return batch.reward + batch.discount * (1 - batch.terminated) * soft_value


def critic_loss(critic: Tensors, batch: Batch, target: Tensor) -> tuple[Tensor, Tensor]:
    """J_Q = sum_i E[ 1/2 (Q_i(s, a) - y)^2 ], and the mean of Q.     (5)"""
    q = twin_q(critic, batch.observation, batch.action)
    return 0.5 * (q - target).square().mean(-1).sum(), q.detach().mean()


def actor_loss(
    actor: Tensors, critic: Tensors, log_temperature: Tensor, observation: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """J_pi = E[ alpha log pi(a|s) - min_i Q_i(s, a) ], a = tanh(mean + std * noise), and log pi.     (9)"""
    action, log_pi = sample_action(actor, observation, noise)
    q = twin_q(critic, observation, action).amin(0)
    return (log_temperature.exp() * log_pi - q).mean(), log_pi.detach()


def temperature_loss(log_temperature: Tensor, log_pi: Tensor, target_entropy: float) -> Tensor:
    """J(alpha) = E[ -log alpha (log pi(a|s) + target entropy) ].     (18), with log alpha for alpha

    The sign of the gradient is the same; log alpha keeps the step size independent of alpha.
    """
    return -(log_temperature * (log_pi + target_entropy)).mean()


class Sac:
    """Networks, optimisers and the update that ties the losses together."""

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        hidden: tuple[int, ...],
        *,
        learning_rate: float,
        tau: float,
        initial_temperature: float,
        target_entropy: float,
        device: torch.device,
        seed: int,
    ) -> None:
        self.tau = tau
        self.target_entropy = target_entropy
        self.act_dim = act_dim
        self.device = device
        generator = torch.Generator().manual_seed(seed)
        self.actor = FlatParameters(actor_shapes(obs_dim, act_dim, hidden), device)
        self.critic = FlatParameters(critic_shapes(obs_dim, act_dim, hidden), device)
        self.target_critic = FlatParameters(critic_shapes(obs_dim, act_dim, hidden), device)
        self.temperature = FlatParameters({"log_temperature": (1,)}, device)
        initialise(self.actor, generator)
        initialise(self.critic, generator)
        self.target_critic.flat.copy_(self.critic.flat)
        self.temperature.flat.fill_(math.log(initial_temperature))
        self.optimisers = {
            part: torch.optim.Adam([parameters.flat], lr=learning_rate, fused=True)
            for part, parameters in (
                ("actor", self.actor),
                ("critic", self.critic),
                ("temperature", self.temperature),
            )
        }

    def update(self, batch: Batch) -> Losses:
        """Take one step for the critics, the actor and the temperature, and move the target critics."""
        noise = torch.randn(2, len(batch.reward), self.act_dim, device=self.device)
        log_temperature = self.temperature.frozen["log_temperature"]
        with torch.no_grad():
            target = soft_target(self.target_critic.frozen, self.actor.frozen, log_temperature, batch, noise[0])
        loss_q, q_mean = critic_loss(self.critic.trainable, batch, target)
        self._descend("critic", self.critic, loss_q)

        loss_pi, log_pi = actor_loss(
            self.actor.trainable, self.critic.frozen, log_temperature, batch.observation, noise[1]
        )
        self._descend("actor", self.actor, loss_pi)

        loss_alpha = temperature_loss(self.temperature.trainable["log_temperature"], log_pi, self.target_entropy)
        self._descend("temperature", self.temperature, loss_alpha)

        self.target_critic.flat.lerp_(self.critic.flat, self.tau)
        return Losses(
            loss_q.detach(),
            loss_pi.detach(),
            loss_alpha.detach(),
            log_temperature.exp().squeeze(),
            q_mean,
            -log_pi.mean(),
        )

    def policy(self) -> dict[str, Tensor]:
        """Return what is needed to act, by name."""
        return dict(self.actor.frozen)

    def _descend(self, part: str, parameters: FlatParameters, loss: Tensor) -> None:
        parameters.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimisers[part].step()
