"""Variants of SAC, TD3 and DDPG that do one thing as the papers do, or as a run in many processes does.

`benchmarks/deviations.py` trains them with `--algo deviation.continuous:NAME`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from deviation.parts import (
    glorot,
    late_action_q,
    late_action_shapes,
    shrink_last_layer,
    squashed_gaussian_without_bounds,
)
from spreeze.algorithms import Adam, AlgorithmSpec, Batch, FlatParameters, Tensors, Terms
from spreeze.algorithms.critics import bootstrap
from spreeze.algorithms.ddpg import Ddpg
from spreeze.algorithms.networks import initialise
from spreeze.algorithms.sac import Sac, actor_loss, soft_target, temperature_loss
from spreeze.algorithms.td3 import Td3

GAMMA = 0.99
UNITS = 2.0  # the bound of Pendulum-v1's action
UPDATES_PER_VERSION = 100  # four versions per second at 400 updates per second, what two cores make
LOWEST_ALPHA = 1e-6
WEIGHT_DECAY = 0.01
LAST_LAYERS = 0.003
ACTOR_RATE_SHARE = 0.1  # 0.0001 of 0.001

# --- SAC -------------------------------------------------------------------------------------------------------


class LaggingSac(Sac):
    """Samplers act with a policy of up to so many updates ago, as in a run whose processes do not wait."""

    def __init__(self, spec: AlgorithmSpec) -> None:
        super().__init__(spec)
        self._acting = {name: tensor.clone() for name, tensor in self.actor.frozen.items()}
        self._updates = 0

    def update(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        terms = super().update(batch, generator)
        self._updates += 1
        if self._updates % UPDATES_PER_VERSION == 0:
            for name, tensor in self.actor.frozen.items():
                self._acting[name].copy_(tensor)
        return terms

    def policy(self) -> dict[str, Tensor]:
        return dict(self._acting)


class AlphaSac(Sac):
    """The variable of the temperature loss is alpha: J(alpha) = E[ -alpha (log pi(a|s) + target entropy) ]."""

    def __init__(self, spec: AlgorithmSpec) -> None:
        super().__init__(spec)
        self.alpha = FlatParameters({"alpha": (1,)}, self.device)
        self.alpha.flat.fill_(self.settings.initial_temperature)
        self.optimisers["alpha"] = Adam(self.alpha.flat, spec.learning_rate)

    def step_actor(self, loss: Tensor, entropy: Tensor) -> Terms:
        self.descend("actor", self.actor, loss)
        loss_alpha = (self.alpha.trainable["alpha"] * (entropy - self.target_entropy)).squeeze()
        self.descend("alpha", self.alpha, loss_alpha)
        self.alpha.flat.clamp_(min=LOWEST_ALPHA)
        self.temperature.flat.copy_(self.alpha.flat.log())
        return {
            "actor_loss": loss,
            "temperature_loss": loss_alpha,
            "temperature": self.temperature.frozen["log_temperature"],
            "entropy": entropy,
        }

    def networks(self) -> list[FlatParameters]:
        return [*super().networks(), self.alpha]


class FreshEntropySac(Sac):
    """The temperature's step is of actions that are drawn for it, by the actor after its own step."""

    def __init__(self, spec: AlgorithmSpec) -> None:
        super().__init__(spec)
        self._generator = torch.Generator(self.device).manual_seed(spec.seed)

    def update_actor(self, batch: Batch, noise: Tensor) -> Terms:
        log_temperature = self.temperature.frozen["log_temperature"]
        loss, _ = actor_loss(
            self.actor.trainable, self.critic.frozen, log_temperature, batch.observation, noise, self.operations
        )
        self.descend("actor", self.actor, loss)
        fresh = torch.randn(noise.shape, device=self.device, generator=self._generator)
        with torch.no_grad():
            _, log_pi = self.sample_action(self.actor.frozen, batch.observation, fresh)
        entropy = -log_pi.mean()
        loss_alpha = temperature_loss(self.temperature.trainable["log_temperature"], entropy, self.target_entropy)
        self.descend("temperature", self.temperature, loss_alpha)
        return {
            "actor_loss": loss,
            "temperature_loss": loss_alpha,
            "temperature": log_temperature,
            "entropy": entropy,
        }


class UnboundedSac(Sac):
    """The learner does not bound the log standard deviation. Samplers do: they have no policy without bounds."""

    def update(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        self.operations = self.operations._replace(squashed_gaussian=squashed_gaussian_without_bounds)
        return super().update(batch, generator)


class GlorotSac(Sac):
    """Networks begin as those of the authors' programs in TensorFlow."""

    def __init__(self, spec: AlgorithmSpec) -> None:
        super().__init__(spec)
        generator = torch.Generator().manual_seed(spec.seed)
        glorot(self.actor, generator)
        glorot(self.critic, generator)
        self.target_critic.flat.copy_(self.critic.flat)


class EntropyBetweenSac(Sac):
    """Rows of several steps get the entropy of the steps between, as far as one can know it: the current mean."""

    def update_critic(self, batch: Batch, noise: Tensor) -> Terms:
        """y as without it, + alpha H (gamma + ... + gamma^(n-1)) of a row with the discount gamma^n."""
        log_temperature = self.temperature.frozen["log_temperature"]
        with torch.no_grad():
            target = soft_target(
                self.target_critic.frozen, self.actor.frozen, log_temperature, batch, noise, self.operations
            )
            _, log_pi = self.sample_action(self.actor.frozen, batch.next_observation, noise)
            steps_between = (GAMMA - batch.discount) / (1 - GAMMA)
            target += log_temperature.exp() * -log_pi.mean() * steps_between
        loss, q = self.critic_loss(batch, target)
        self.descend("critic", self.critic, loss)
        return {"critic_loss": loss, "q_mean": q}


# --- TD3 -------------------------------------------------------------------------------------------------------


class UnclippedTd3(Td3):
    """Target actions are not clipped after smoothing, as in (15)."""

    def next_action(self, observation: Tensor, noise: Tensor) -> Tensor:
        std, clip = self.settings.target_noise, self.settings.target_noise_clip
        eps = (std * noise).clamp(-clip, clip)
        return self.deterministic_action(self.target_actor.frozen, observation) + eps


class SquaresTd3(Td3):
    """The loss of the critics is the mean of squares, without the half."""

    def critic_loss(self, batch: Batch, target: Tensor) -> tuple[Tensor, Tensor]:
        loss, q = super().critic_loss(batch, target)
        return 2 * loss, q


class UnitsTd3(Td3):
    """Critics see actions in the environment's units, of Pendulum-v1."""

    def critic_target(self, batch: Batch, next_action: Tensor, bonus: Tensor | None = None) -> Tensor:
        return super().critic_target(batch, UNITS * next_action, bonus)

    def critic_loss(self, batch: Batch, target: Tensor) -> tuple[Tensor, Tensor]:
        return super().critic_loss(batch._replace(action=UNITS * batch.action), target)

    def update_actor(self, batch: Batch, _noise: Tensor) -> Terms:
        first = {name: tensor[:1] for name, tensor in self.critic.frozen.items()}
        action = self.deterministic_action(self.actor.trainable, batch.observation)
        loss = -self.values(first, batch.observation, UNITS * action).mean()
        self.descend("actor", self.actor, loss)
        return {"actor_loss": loss}


# --- DDPG ------------------------------------------------------------------------------------------------------


class SquaresDdpg(Ddpg):
    """The loss of the critic is the mean of squares, without the half."""

    def critic_loss(self, batch: Batch, target: Tensor) -> tuple[Tensor, Tensor]:
        loss, q = super().critic_loss(batch, target)
        return 2 * loss, q


class DecayDdpg(Ddpg):
    """The critic's weights decay: Adam gets 0.01 w more for each."""

    def critic_loss(self, batch: Batch, target: Tensor) -> tuple[Tensor, Tensor]:
        loss, q = super().critic_loss(batch, target)
        squares = [tensor.square().sum() for tensor in self.critic.trainable.values()]
        return loss + 0.5 * WEIGHT_DECAY * torch.stack(squares).sum(), q


class SlowActorDdpg(Ddpg):
    """The actor has a tenth of the critic's learning rate."""

    def __init__(self, spec: AlgorithmSpec) -> None:
        super().__init__(spec)
        self.optimisers["actor"].learning_rate = ACTOR_RATE_SHARE * spec.learning_rate

    @property
    def learning_rate(self) -> float:
        return self.optimisers["critic"].learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self.optimisers["critic"].learning_rate = rate
        self.optimisers["actor"].learning_rate = ACTOR_RATE_SHARE * rate


class SmallLastDdpg(Ddpg):
    """The last layers of actor and critic begin within 0.003."""

    def __init__(self, spec: AlgorithmSpec) -> None:
        super().__init__(spec)
        for network, target in ((self.actor, self.target_actor), (self.critic, self.target_critic)):
            shrink_last_layer(network, len(spec.hidden), LAST_LAYERS)
            target.flat.copy_(network.flat)


class LateActionDdpg(Ddpg):
    """The critic sees the action in its second layer."""

    def __init__(self, spec: AlgorithmSpec) -> None:
        super().__init__(spec)
        shapes = late_action_shapes(spec.observation_size, spec.action_size, spec.hidden)
        self.critic, self.target_critic = FlatParameters(shapes, self.device), FlatParameters(shapes, self.device)
        initialise(self.critic, torch.Generator().manual_seed(spec.seed + 1))
        self.target_critic.flat.copy_(self.critic.flat)
        self.optimisers["critic"] = Adam(self.critic.flat, spec.learning_rate)

    def values(self, critic: Tensors, observation: Tensor, action: Tensor) -> Tensor:
        return late_action_q(critic, observation, action, self.operations)

    def critic_target(self, batch: Batch, next_action: Tensor, bonus: Tensor | None = None) -> Tensor:
        return bootstrap(batch, self.values(self.target_critic.frozen, batch.next_observation, next_action), bonus)

    def critic_loss(self, batch: Batch, target: Tensor) -> tuple[Tensor, Tensor]:
        q = self.values(self.critic.trainable, batch.observation, batch.action)
        return self.operations.squared_error(q, target), q.detach()

    def update_actor(self, batch: Batch, _noise: Tensor) -> Terms:
        action = self.deterministic_action(self.actor.trainable, batch.observation)
        loss = -self.values(self.critic.frozen, batch.observation, action).mean()
        self.descend("actor", self.actor, loss)
        return {"actor_loss": loss}
