"""Soft actor-critic with automatic temperature.

Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018 (arXiv 1812.05905); equation numbers are
that paper's. Twin critics take the smaller value (Fujimoto et al. 2018), in the target and for the actor.

An update, in this order (`ActorCritic.update`):

    1. critics:      y = r + discount (1 - terminated) (min_i Q'_i(s', a') - alpha log pi(a'|s')),  a' ~ pi(s')
                     descend J_Q = sum_i E[ 1/2 (Q_i(s, a) - y)^2 ]                               (2), (3), (5)
    2. actor:        descend J_pi = E[ alpha log pi(a|s) - min_i Q_i(s, a) ],  a ~ pi(s)          (9)
    3. temperature:  descend J(alpha) = E[ -log alpha (log pi(a|s) + target entropy) ]            (18)
    4. targets:      Q'_i <- (1 - tau) Q'_i + tau Q_i

docs/algorithms/sac.md explains the figures and lists what differs from the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from spreeze.algorithms.actor_critic import ActorCritic, Terms
from spreeze.algorithms.batch import Batch
from spreeze.algorithms.critics import values
from spreeze.algorithms.distributional import Distribution
from spreeze.algorithms.kernels.operations import PLAIN, Adam, Operations
from spreeze.algorithms.lazy_torch import torch
from spreeze.algorithms.networks import FlatParameters, Tensors, sample_action, twin_outputs, twin_q
from spreeze.algorithms.spec import AlgorithmSpec, Figure

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class SacSettings:
    """The settings that only SAC has."""

    initial_temperature: float = 0.2
    """Entropy temperature at the start. It is learned from there."""
    target_entropy: float | Literal["auto"] = "auto"
    """Target entropy of the policy. auto: minus the number of action dimensions."""

    def __post_init__(self) -> None:
        if not 0 < self.initial_temperature < math.inf:
            raise ValueError(f"--initial-temperature must be above 0, not {self.initial_temperature}")
        if self.target_entropy != "auto" and not math.isfinite(self.target_entropy):
            raise ValueError(f"--target-entropy must be a finite number, not {self.target_entropy}")


class Sac(ActorCritic):
    """A stochastic actor that is paid for its entropy, at a temperature that keeps the entropy where it should be."""

    Settings = SacSettings
    settings: SacSettings
    policy_kind = "gaussian"
    figures = (
        Figure("critic_loss", "critic"),
        Figure("actor_loss", "actor"),
        Figure("temperature_loss", "actor"),
        Figure("temperature", "actor", read=lambda log_temperature: log_temperature.exp()),
        Figure("q_mean", "critic"),
        Figure("entropy", "actor"),
    )

    def __init__(self, spec: AlgorithmSpec) -> None:
        super().__init__(spec)
        wanted = self.settings.target_entropy
        self.target_entropy = -float(spec.action_size) if wanted == "auto" else wanted
        self.temperature = FlatParameters({"log_temperature": (1,)}, self.device)
        self.temperature.flat.fill_(math.log(self.settings.initial_temperature))
        self.optimisers["temperature"] = Adam(self.temperature.flat, spec.learning_rate)

    def update_critic(self, batch: Batch, noise: Tensor) -> Terms:
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
        loss, q = self.critic_loss(batch, target)
        self.descend("critic", self.critic, loss)
        return {"critic_loss": loss, "q_mean": q}

    def update_actor(self, batch: Batch, noise: Tensor) -> Terms:
        """Take the steps of actor and temperature."""
        log_temperature = self.temperature.frozen["log_temperature"]
        loss, entropy = actor_loss(
            self.actor.trainable,
            self.critic.frozen,
            log_temperature,
            batch.observation,
            noise,
            self.operations,
            self.distribution,
        )
        self.descend("actor", self.actor, loss)
        loss_alpha = temperature_loss(self.temperature.trainable["log_temperature"], entropy, self.target_entropy)
        self.descend("temperature", self.temperature, loss_alpha)
        return {
            "actor_loss": loss,
            "temperature_loss": loss_alpha,
            "temperature": log_temperature,
            "entropy": entropy,
        }

    def of_actor(self) -> list[Tensor]:
        """The temperature goes with the actor."""
        return [self.actor.flat, self.temperature.flat]

    def networks(self) -> list[FlatParameters]:
        """The temperature is one too."""
        return [*super().networks(), self.temperature]


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
    """J_pi = E[ alpha log pi(a|s) - min_i Q_i(s, a) ], a = tanh(mean + std * noise), and -E[ log pi ].     (9)"""
    action, log_pi = sample_action(actor, observation, noise, operations)
    q = values(critic, observation, action, operations, distribution)
    return operations.soft_objective(q, log_pi, log_temperature), -log_pi.detach().mean()


def temperature_loss(log_temperature: Tensor, entropy: Tensor, target_entropy: float) -> Tensor:
    """J(alpha) = E[ -log alpha (log pi(a|s) + target entropy) ].     (18), with log alpha for alpha

    The sign of the gradient is the same; log alpha keeps the step size independent of alpha.
    """
    return (log_temperature * (entropy - target_entropy)).squeeze()
