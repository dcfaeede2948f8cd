"""An algorithm of your own: SAC with a fixed temperature, and actions that change little from one step to the next.

python examples/own_algorithm.py
spreeze train Pendulum-v1 --algo own_algorithm:FixedTemperatureSac --smoothness 0.5    # in examples/
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

import spreeze
from spreeze.algorithms import ActorCritic, Batch, Figure, Terms


@dataclass(frozen=True)
class OwnSettings:
    """The settings that only this algorithm has."""

    fixed_temperature: float = 0.2
    """What one nat of entropy is worth, in units of the reward."""
    smoothness: float = 0.1
    """Weight of the penalty on actions that differ from those of the step before."""

    def __post_init__(self) -> None:
        if min(self.fixed_temperature, self.smoothness) < 0:
            raise ValueError("--fixed-temperature and --smoothness must be at least 0")


class FixedTemperatureSac(ActorCritic):
    """Two critics and a stochastic actor, which is paid for its entropy and for smooth actions."""

    Settings = OwnSettings
    settings: OwnSettings
    policy_kind = "gaussian"
    figures = (Figure("critic_loss", "critic"), Figure("actor_loss", "actor"), Figure("smoothness_loss", "actor"))

    def update_critic(self, batch: Batch, noise: torch.Tensor) -> Terms:
        """Descend to y = r + discount (1 - terminated) (min_i Q'_i(s', a') - alpha log pi(a'|s')), a' ~ pi(s')."""
        with torch.no_grad():
            action, log_pi = self.sample_action(self.actor.frozen, batch.next_observation, noise)
            target = self.critic_target(batch, action, bonus=-self.settings.fixed_temperature * log_pi)
        critic_loss, _ = self.critic_loss(batch, target)
        self.descend("critic", self.critic, critic_loss)
        return {"critic_loss": critic_loss}

    def update_actor(self, batch: Batch, noise: torch.Tensor) -> Terms:
        """Descend E[ alpha log pi(a|s) - min_i Q_i(s, a) + smoothness |a' - a|^2 ], a ~ pi(s), a' ~ pi(s')."""
        action, log_pi = self.sample_action(self.actor.trainable, batch.observation, noise)
        following, _ = self.sample_action(self.actor.trainable, batch.next_observation, noise)
        q = self.values(self.critic.frozen, batch.observation, action).amin(0)
        actor_loss = (self.settings.fixed_temperature * log_pi - q).mean()
        smoothness_loss = (following - action).square().sum(-1).mean()
        self.descend("actor", self.actor, actor_loss + self.settings.smoothness * smoothness_loss)
        return {"actor_loss": actor_loss, "smoothness_loss": smoothness_loss}


if __name__ == "__main__":
    spreeze.train("Pendulum-v1", algo=FixedTemperatureSac, target_return=-200, max_seconds=120)
