"""Soft actor-critic with automatic temperature.

Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018 (arXiv 1812.05905); equation numbers are
that paper's. Twin critics take the smaller value (Fujimoto et al. 2018), in the target and for the actor.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

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
from spreeze.algorithms.operations import PLAIN, Adam, Operations


class Losses(NamedTuple):
    """What an update reports, each a scalar tensor."""

    critic_loss: Tensor
    actor_loss: Tensor
    temperature_loss: Tensor
    temperature: Tensor
    q_mean: Tensor
    entropy: Tensor


class Terms(NamedTuple):
    """What is left of an update; reading it is up to whoever wants a report."""

    critic_loss: Tensor
    actor_loss: Tensor
    temperature_loss: Tensor
    log_temperature: Tensor
    q: Tensor  # (twins, batch)
    log_pi: Tensor  # (batch,)

    def losses(self) -> Losses:
        """Return the figures that people read."""
        return Losses(
            self.critic_loss,
            self.actor_loss,
            self.temperature_loss,
            self.log_temperature.exp().squeeze(),
            self.q.mean(),
            -self.log_pi.mean(),
        )


def soft_target(
    target_critic: Tensors,
    actor: Tensors,
    log_temperature: Tensor,
    batch: Batch,
    noise: Tensor,
    operations: Operations = PLAIN,
) -> Tensor:
    """y = r + discount (1 - terminated) (min_i Q'_i(s', a') - alpha log pi(a'|s')), a' ~ pi(s').     (2), (3), (5)

    A truncated episode is not terminated: it bootstraps from its last observation.
    """
    next_action, log_pi = sample_action(actor, batch.next_observation, noise, operations)
    q = twin_q(target_critic, batch.next_observation, next_action, operations)
    return operations.soft_bootstrap(q, log_pi, log_temperature, batch.reward, batch.discount, batch.terminated)


def critic_loss(
    critic: Tensors, batch: Batch, target: Tensor, operations: Operations = PLAIN
) -> tuple[Tensor, Tensor]:
    """J_Q = sum_i E[ 1/2 (Q_i(s, a) - y)^2 ], and Q, (twins, batch).     (5)"""
    q = twin_q(critic, batch.observation, batch.action, operations)
    return operations.squared_error(q, target), q.detach()


def actor_loss(
    actor: Tensors,
    critic: Tensors,
    log_temperature: Tensor,
    observation: Tensor,
    noise: Tensor,
    operations: Operations = PLAIN,
) -> tuple[Tensor, Tensor]:
    """J_pi = E[ alpha log pi(a|s) - min_i Q_i(s, a) ], a = tanh(mean + std * noise), and log pi.     (9)"""
    action, log_pi = sample_action(actor, observation, noise, operations)
    q = twin_q(critic, observation, action, operations)
    return operations.soft_objective(q, log_pi, log_temperature), log_pi.detach()


def temperature_loss(log_temperature: Tensor, log_pi: Tensor, target_entropy: float) -> Tensor:
    """J(alpha) = E[ -log alpha (log pi(a|s) + target entropy) ].     (18), with log alpha for alpha

    The sign of the gradient is the same; log alpha keeps the step size independent of alpha.
    """
    return (-log_temperature * (log_pi.mean() + target_entropy)).squeeze()


Part = Literal["all", "critic", "actor"]


class Sac:
    """Networks, optimisers and the update that ties the losses together.

    Where actor and critics learn on devices of their own, each side has such an object and updates its part of it;
    the rest is a copy of the other side's, as it was when it came.
    """

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
        operations: Operations = PLAIN,
        part: Part = "all",
    ) -> None:
        self.operations = operations
        self.part = part
        self.tau = tau
        self.target_entropy = target_entropy
        self.obs_dim, self.act_dim, self.hidden = obs_dim, act_dim, hidden
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
        self._none = torch.zeros((), device=device)  # stands for what the other side has computed
        self.optimisers = {
            part: Adam(parameters.flat, learning_rate)
            for part, parameters in (
                ("actor", self.actor),
                ("critic", self.critic),
                ("temperature", self.temperature),
            )
        }

    def update(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Take one step for the critics, the actor and the temperature, and move the target critics.

        An object for one part takes that part's step alone, with the random numbers that it has in the whole.
        """
        noise = torch.randn(2, len(batch.reward), self.act_dim, device=self.device, generator=generator)
        loss_q = loss_pi = loss_alpha = q = log_pi = self._none
        if self.part != "actor":
            loss_q, q = self._update_critic(batch, noise[0])
        if self.part != "critic":
            loss_pi, loss_alpha, log_pi = self._update_actor(batch, noise[1])
        if self.part != "actor":
            self.target_critic.flat.lerp_(self.critic.flat, self.tau)
        return Terms(loss_q, loss_pi, loss_alpha, self.temperature.frozen["log_temperature"], q, log_pi)

    def _update_critic(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            target = soft_target(
                self.target_critic.frozen,
                self.actor.frozen,
                self.temperature.frozen["log_temperature"],
                batch,
                noise,
                self.operations,
            )
        loss_q, q = critic_loss(self.critic.trainable, batch, target, self.operations)
        self._descend("critic", self.critic, loss_q)
        return loss_q.detach(), q

    def _update_actor(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        loss_pi, log_pi = actor_loss(
            self.actor.trainable,
            self.critic.frozen,
            self.temperature.frozen["log_temperature"],
            batch.observation,
            noise,
            self.operations,
        )
        self._descend("actor", self.actor, loss_pi)
        loss_alpha = temperature_loss(self.temperature.trainable["log_temperature"], log_pi, self.target_entropy)
        self._descend("temperature", self.temperature, loss_alpha)
        return loss_pi.detach(), loss_alpha.detach(), log_pi

    def own(self) -> list[Tensor]:
        """Return what this part updates and the other side needs a copy of: critics, or actor and temperature."""
        return [self.critic.flat] if self.part == "critic" else [self.actor.flat, self.temperature.flat]

    def others(self) -> list[Tensor]:
        """Return what this part has as a copy of the other side's."""
        return [self.actor.flat, self.temperature.flat] if self.part == "critic" else [self.critic.flat]

    @property
    def learning_rate(self) -> float:
        """Adam's step size, of all parts alike. A captured update keeps the one it was captured with."""
        return self.optimisers["critic"].learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        for optimiser in self.optimisers.values():
            optimiser.learning_rate = rate

    def blank_copy(self, operations: Operations) -> Sac:
        """Return an untrained algorithm of the same shapes, to try or compile something with."""
        return Sac(
            self.obs_dim,
            self.act_dim,
            self.hidden,
            learning_rate=self.learning_rate,
            tau=self.tau,
            initial_temperature=1.0,
            target_entropy=self.target_entropy,
            device=self.device,
            seed=0,
            operations=operations,
            part=self.part,
        )

    def state(self) -> list[Tensor]:
        """Return all that an update changes, in a fixed order; the tensors themselves, not copies."""
        moments = [tensor for optimiser in self.optimisers.values() for tensor in optimiser.state()]
        return [*self.parameters(), *moments]

    def parameters(self) -> list[Tensor]:
        """Return the flat parameters of each network."""
        return [part.flat for part in (self.actor, self.critic, self.target_critic, self.temperature)]

    def policy(self) -> dict[str, Tensor]:
        """Return what is needed to act, by name."""
        return dict(self.actor.frozen)

    def _descend(self, part: str, parameters: FlatParameters, loss: Tensor) -> None:
        parameters.zero_grad()
        loss.backward()
        self.operations.adam(self.optimisers[part])
