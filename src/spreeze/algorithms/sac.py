"""Soft actor-critic with automatic temperature.

Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018 (arXiv 1812.05905); equation numbers are
that paper's. Twin critics take the smaller value (Fujimoto et al. 2018), in the target and for the actor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

from spreeze.algorithms.actor_critic import ActorCritic, ActorTerms
from spreeze.algorithms.batch import Batch
from spreeze.algorithms.critics import critic_loss, values
from spreeze.algorithms.distributional import Distribution
from spreeze.algorithms.kernels.operations import PLAIN, Adam, Operations
from spreeze.algorithms.networks import FlatParameters, Tensors, sample_action, twin_outputs, twin_q


def soft_target(
    target_critic: Tensors,
    actor: Tensors,
    log_temperature: Tensor,
    batch: Batch,
    noise: Tensor,
    operations: Operations = PLAIN,
    distribution: Distribution | None = None,
) -> Tensor:
    """y = r + discount (1 - terminated) (min_i Q'_i(s', a') - alpha log pi(a'|s')), a' ~ pi(s').     (2), (3), (5)

    A truncated episode is not terminated: it bootstraps from its last observation.
    """
    next_action, log_pi = sample_action(actor, batch.next_observation, noise, operations)
    if distribution is not None:
        outputs = twin_outputs(target_critic, batch.next_observation, next_action, operations)
        return distribution.target(outputs, batch, -log_temperature.exp() * log_pi)
    q = twin_q(target_critic, batch.next_observation, next_action, operations)
    return operations.soft_bootstrap(q, log_pi, log_temperature, batch.reward, batch.discount, batch.terminated)


def actor_loss(
    actor: Tensors,
    critic: Tensors,
    log_temperature: Tensor,
    observation: Tensor,
    noise: Tensor,
    operations: Operations = PLAIN,
    distribution: Distribution | None = None,
) -> tuple[Tensor, Tensor]:
    """J_pi = E[ alpha log pi(a|s) - min_i Q_i(s, a) ], a = tanh(mean + std * noise), and log pi.     (9)"""
    action, log_pi = sample_action(actor, observation, noise, operations)
    q = values(critic, observation, action, operations, distribution)
    return operations.soft_objective(q, log_pi, log_temperature), log_pi.detach()


def temperature_loss(log_temperature: Tensor, log_pi: Tensor, target_entropy: float) -> Tensor:
    """J(alpha) = E[ -log alpha (log pi(a|s) + target entropy) ].     (18), with log alpha for alpha

    The sign of the gradient is the same; log alpha keeps the step size independent of alpha.
    """
    return (-log_temperature * (log_pi.mean() + target_entropy)).squeeze()


class Sac(ActorCritic):
    """A stochastic actor that is paid for its entropy, at a temperature that keeps the entropy where it should be."""

    policy_kind = "gaussian"
    outputs_an_action = 2  # mean and log standard deviation

    def __init__(self, *sizes: Any, initial_temperature: float, target_entropy: float, **shared: Any) -> None:
        super().__init__(*sizes, **shared)
        self.target_entropy = target_entropy
        self.temperature = FlatParameters({"log_temperature": (1,)}, self.device)
        self.temperature.flat.fill_(math.log(initial_temperature))
        self.optimisers["temperature"] = Adam(self.temperature.flat, self.learning_rate)

    @classmethod
    def of(cls, settings: Mapping[str, Any], obs_dim: int, act_dim: int, **shared: Any) -> Self:
        """Return an untrained algorithm; by default the entropy to keep is minus the action's size."""
        entropy = settings["target_entropy"]
        return cls(
            obs_dim,
            act_dim,
            settings["hidden"],
            initial_temperature=settings["initial_temperature"],
            target_entropy=-float(act_dim) if entropy == "auto" else entropy,
            **shared,
        )

    def settings(self) -> dict[str, Any]:
        """Return what the constructor takes besides the settings of all algorithms."""
        return {"initial_temperature": 1.0, "target_entropy": self.target_entropy}

    def update_critic(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Take the critics' step towards the soft target."""
        with torch.no_grad():
            target = soft_target(
                self.target_critic.frozen,
                self.actor.frozen,
                self.temperature.frozen["log_temperature"],
                batch,
                noise,
                self.operations,
                self.distribution,
            )
        loss, q = critic_loss(self.critic.trainable, batch, target, self.operations, self.distribution)
        self.descend("critic", self.critic, loss)
        return loss.detach(), q

    def update_actor(self, batch: Batch, noise: Tensor) -> ActorTerms:
        """Take the steps of actor and temperature."""
        loss, log_pi = actor_loss(
            self.actor.trainable,
            self.critic.frozen,
            self.temperature.frozen["log_temperature"],
            batch.observation,
            noise,
            self.operations,
            self.distribution,
        )
        self.descend("actor", self.actor, loss)
        loss_alpha = temperature_loss(self.temperature.trainable["log_temperature"], log_pi, self.target_entropy)
        self.descend("temperature", self.temperature, loss_alpha)
        return ActorTerms(loss.detach(), loss_alpha.detach(), log_pi)

    def temperature_logarithm(self) -> Tensor:
        """Return the logarithm of the temperature."""
        return self.temperature.frozen["log_temperature"]

    def of_actor(self) -> list[Tensor]:
        """The temperature goes with the actor."""
        return [self.actor.flat, self.temperature.flat]

    def networks(self) -> list[FlatParameters]:
        """The temperature is one too."""
        return [*super().networks(), self.temperature]
