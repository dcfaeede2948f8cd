"""Soft actor-critic with automatic temperature.

Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018 (arXiv 1812.05905); equation numbers are
that paper's. Twin critics take the smaller value (Fujimoto et al. 2018), in the target and for the actor.

An update, in this order (`ActorCritic.update`):

    1. critics:      y = r + discount (1 - terminated) (min_i Q'_i(s', a') - alpha log pi(a'|s')),  a' ~ pi(s')
                     descend J_Q = sum_i E[ 1/2 (Q_i(s, a) - y)^2 ]                               (2), (3), (5)
    2. actor:        descend J_pi = E[ alpha log pi(a|s) - min_i Q_i(s, a) ],  a ~ pi(s)          (9)
    3. temperature:  descend J(alpha) = E[ -log alpha (log pi(a|s) + target entropy) ]            (18)
    4. targets:      Q'_i <- (1 - tau) Q'_i + tau Q_i

Discrete actions need no samples: all expectations over actions are sums (`DiscreteSac`; Christodoulou, "Soft
Actor-Critic for Discrete Action Settings", 2019, arXiv 1910.07207).

docs/algorithms/sac.md explains the figures and lists what differs from the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from spreeze.algorithms.actor_critic import ActorCritic
from spreeze.algorithms.algorithm import Algorithm, Terms
from spreeze.algorithms.batch import Batch
from spreeze.algorithms.choices import at_choices, first_values, log_probabilities
from spreeze.algorithms.critics import bootstrap, values
from spreeze.algorithms.distributional import Distribution
from spreeze.algorithms.kernels.operations import PLAIN, Adam, Operations
from spreeze.algorithms.lazy_torch import torch
from spreeze.algorithms.networks import (
    FlatParameters,
    Tensors,
    logits_of,
    outputs_of,
    sample_action,
    twin_outputs,
    twin_q,
)
from spreeze.algorithms.spec import ActionKind, AlgorithmSpec, Figure, PolicyKind

if TYPE_CHECKING:
    from torch import Tensor


USUAL_ENTROPY_SHARE = 0.5
"""Of the entropy of random choices; Christodoulou has 0.98, at which a policy is hardly more than random choices."""


@dataclass(frozen=True)
class SacSettings:
    """The settings that only SAC has."""

    initial_temperature: float = 0.2
    """Entropy temperature at the start. It is learned from there."""
    target_entropy: float | Literal["auto"] = "auto"
    """Target entropy of the policy. auto: minus the number of action dimensions; for discrete actions half of the
    entropy of random choices."""

    def __post_init__(self) -> None:
        if not 0 < self.initial_temperature < math.inf:
            raise ValueError(f"--initial-temperature must be above 0, not {self.initial_temperature}")
        if self.target_entropy != "auto" and not math.isfinite(self.target_entropy):
            raise ValueError(f"--target-entropy must be a finite number, not {self.target_entropy}")


class Sac(ActorCritic):
    """A stochastic actor that is paid for its entropy, at a temperature that keeps the entropy where it should be."""

    Settings = SacSettings
    settings: SacSettings
    policy_kind: ClassVar[PolicyKind] = "gaussian"
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
        self.target_entropy = self.usual_entropy() if wanted == "auto" else wanted
        self.temperature = FlatParameters({"log_temperature": (1,)}, self.device)
        self.temperature.flat.fill_(math.log(self.settings.initial_temperature))
        self.optimisers["temperature"] = Adam(self.temperature.flat, spec.learning_rate)

    @classmethod
    def for_actions(cls, kind: ActionKind) -> type[Algorithm]:
        """Discrete actions have a class of their own; one that inherits from this class is for continuous ones."""
        return DiscreteSac if cls is Sac and kind != "continuous" else cls

    def usual_entropy(self) -> float:
        """Return the target entropy that "auto" stands for."""
        return -float(self.spec.action_size)

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
        return self.step_actor(loss, entropy)

    def step_actor(self, loss: Tensor, entropy: Tensor) -> Terms:
        """Let the actor descend its loss, and the temperature follow the entropy."""
        self.descend("actor", self.actor, loss)
        loss_alpha = temperature_loss(self.temperature.trainable["log_temperature"], entropy, self.target_entropy)
        self.descend("temperature", self.temperature, loss_alpha)
        return {
            "actor_loss": loss,
            "temperature_loss": loss_alpha,
            "temperature": self.temperature.frozen["log_temperature"],
            "entropy": entropy,
        }

    def of_actor(self) -> list[Tensor]:
        """The temperature goes with the actor."""
        return [self.actor.flat, self.temperature.flat]

    def networks(self) -> list[FlatParameters]:
        """The temperature is one too."""
        return [*super().networks(), self.temperature]


class DiscreteSac(Sac):
    """The same for discrete actions: the actor gives the probability of each choice, the critics its value.

    An action of several components d has a policy pi_d and values Q_d for each. The entropy of the policy is the sum
    of theirs, and the value of a state the mean of what each component expects.
    """

    policy_kind = "categorical"
    action_kinds = ("discrete", "multi_discrete", "multi_binary")

    def __init__(self, spec: AlgorithmSpec) -> None:
        super().__init__(spec)
        self._first = first_values(spec.choices, self.device)

    def usual_entropy(self) -> float:
        """Return half of the entropy of random choices."""
        return USUAL_ENTROPY_SHARE * sum(map(math.log, self.spec.choices))

    def update_critic(self, batch: Batch, _noise: Tensor) -> Terms:
        """Take the critics' step towards the soft target."""
        with torch.no_grad():
            target = self.soft_target(batch)
        outputs = self.outputs(self.critic.trainable, batch.observation)
        # (critics * components, batch), with atoms (..., atoms)
        taken = torch.cat([at_choices(one, self._first + batch.action) for one in outputs])
        if self.distribution is None:
            loss, q = self.operations.squared_error(taken, target), taken.detach()
        else:
            loss, q = self.distribution.cross_entropy(taken, target), self.distribution.mean(taken.detach())
        loss = loss / self.spec.action_size
        self.descend("critic", self.critic, loss)
        return {"critic_loss": loss, "q_mean": q}

    def update_actor(self, batch: Batch, _noise: Tensor) -> Terms:
        """Take the steps of actor and temperature: J_pi = E[ sum_d sum_a pi_d (alpha log pi_d - min_i Q_id) ]."""
        log_pi = self.log_pi(self.actor.trainable, batch.observation)
        with torch.no_grad():
            q = self.worth(self.outputs(self.critic.frozen, batch.observation)).amin(0)
        alpha = self.temperature.frozen["log_temperature"].exp()
        loss = (log_pi.exp() * (alpha * log_pi - q)).sum(-1).mean()
        return self.step_actor(loss, entropy_of(log_pi.detach()).mean())

    def soft_target(self, batch: Batch) -> Tensor:
        """y = r + discount (1 - terminated) (min_i mean_d sum_a pi_d(a|s') Q'_id(s', a) + alpha H(pi(s')))."""
        log_pi = self.log_pi(self.actor.frozen, batch.next_observation)
        outputs = self.outputs(self.target_critic.frozen, batch.next_observation)
        share = log_pi.exp() / self.spec.action_size  # of each choice in the value of the state
        bonus = self.temperature.frozen["log_temperature"].exp() * entropy_of(log_pi)
        if self.distribution is None:
            return bootstrap(batch, (share * outputs).sum(-1), bonus)
        # The mixture of the distributions of all choices, whose mean is the mean of theirs.
        mixture = (share[..., None] * outputs.softmax(-1)).sum(-2)
        return self.distribution.target(mixture.log(), batch, bonus)

    def log_pi(self, actor: Tensors, observation: Tensor) -> Tensor:
        """Return log pi_d(a|s) for all values of all components, (batch, values)."""
        return log_probabilities(logits_of(actor, observation, self.operations), self.spec.choices)

    def outputs(self, critic: Tensors, observation: Tensor) -> Tensor:
        """Return Q_id(s, a) of all critics, (critics, batch, values), or logits, (critics, batch, values, atoms)."""
        outputs = outputs_of(critic, observation, self.operations)
        return outputs if self.distribution is None else outputs.unflatten(-1, (-1, self.spec.atoms))

    def worth(self, outputs: Tensor) -> Tensor:
        """Return Q_id(s, a), (critics, batch, values)."""
        return outputs if self.distribution is None else self.distribution.mean(outputs)


def entropy_of(log_pi: Tensor) -> Tensor:
    """Return the entropy of all components together, (batch,)."""
    return -(log_pi.exp() * log_pi).sum(-1)


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
