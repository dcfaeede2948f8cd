"""What is tuned for tasks with discrete actions, by the id of the environment: data that several runners share.

Of the RL Zoo, for Stable-Baselines3 and SBX, as of its commit 22e3ff2 of April 2026:
https://github.com/DLR-RM/rl-baselines3-zoo/blob/master/hyperparams/dqn.yml and, in the same folder, ppo.yml. Of
Tianshou, the settings of its own examples, as of its commit f240205 of April 2026: discrete/discrete_dqn.py,
box2d/lunarlander_dqn.py and box2d/acrobot_dualdqn.py in https://github.com/thu-ml/tianshou/tree/master/examples.
A task without an entry gets the defaults of the classes, which are the libraries' own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import protocol


@dataclass(frozen=True)
class Settings:
    """What the command line of a runner may state instead."""

    batch_size: int
    envs: int = 1
    hidden: tuple[int, ...] = (64, 64)


@dataclass(frozen=True)
class DqnSettings(Settings):
    """Of DQN; the defaults are those of Stable-Baselines3, and schedule_steps the Zoo's for unlisted tasks."""

    batch_size: int = 32
    learning_rate: float = 1e-4
    buffer_size: int = 1_000_000
    learning_starts: int = 100
    gamma: float = 0.99
    target_update_interval: int = 10_000
    train_freq: int = 4
    gradient_steps: int = 1
    """-1: as many as environment steps since the last ones."""
    exploration_fraction: float = 0.1
    """Of schedule_steps, over which random choices go from always to exploration_final_eps."""
    exploration_final_eps: float = 0.05
    schedule_steps: int = 1_000_000
    """For how many environment steps it was tuned. A run goes on after them, with the values at their end."""

    def eps_at(self, env_steps: int) -> float:
        """Return the share of random choices."""
        share = min(1.0, env_steps / (self.exploration_fraction * self.schedule_steps))
        return 1.0 + share * (self.exploration_final_eps - 1.0)


@dataclass(frozen=True)
class PpoSettings(Settings):
    """Of PPO; the defaults are those of Stable-Baselines3."""

    batch_size: int = 64
    learning_rate: float = 3e-4
    n_steps: int = 2048
    n_epochs: int = 10
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_range: float = 0.2
    ent_coef: float = 0.0
    normalize: bool = False
    """Observations and rewards, with VecNormalize."""
    is_linear: bool = False
    """Whether learning rate and clip_range go to 0 over schedule_steps."""
    schedule_steps: int = 1_000_000

    def scheduled(self, begin: float, all_steps: int) -> float | Callable[[float], float]:
        """Return what a library asks with the share left of all_steps; a number where nothing is scheduled."""
        if not self.is_linear:
            return begin
        return lambda left: begin * max(0.0, 1.0 - (1.0 - left) * all_steps / self.schedule_steps)


@dataclass(frozen=True)
class TianshouDqnSettings(Settings):
    """Of Tianshou's DQN; the defaults are those of its first example, which is for CartPole."""

    batch_size: int = 64
    envs: int = 10
    hidden: tuple[int, ...] = (128, 128, 128)
    dueling_hidden: tuple[int, ...] = ()
    """Of each of the two heads, after the layers of `hidden`; none: no such heads."""
    learning_rate: float = 1e-3
    buffer_size: int = 20_000
    gamma: float = 0.9
    n_step: int = 3
    target_update_freq: int = 320
    """In updates."""
    steps_per_update: int = 10
    """Environment steps of all environments together, and then one update."""
    has_first_steps: bool = False
    """Whether a batch for each environment is collected before the first update."""
    eps: float = 0.1
    """Share of random choices while it learns."""
    eps_decay: float = 0.0
    """Share that an environment step takes from eps, down to eps_inference."""
    eps_inference: float = 0.05
    """Share of random choices in what is collected before the first update."""
    eps_linear: tuple[int, int] | None = None
    """Environment steps between which eps falls to a half, linearly."""

    def eps_at(self, env_steps: int) -> float:
        """Return the share of random choices while it learns."""
        if self.eps_linear is not None:
            begin, end = self.eps_linear
            return self.eps * (1.0 - 0.5 * min(1.0, max(0.0, (env_steps - begin) / (end - begin))))
        if self.eps_decay:
            return max(self.eps * (1.0 - self.eps_decay) ** env_steps, self.eps_inference)
        return self.eps


CONTROL_DQN = DqnSettings(
    learning_rate=6.3e-4,
    batch_size=128,
    buffer_size=50_000,
    learning_starts=0,
    target_update_interval=250,
    train_freq=4,
    gradient_steps=-1,
    exploration_fraction=0.12,
    exploration_final_eps=0.1,
    schedule_steps=100_000,
    hidden=(256, 256),
)
ZOO_DQN = {
    "CartPole-v1": DqnSettings(
        learning_rate=2.3e-3,
        batch_size=64,
        buffer_size=100_000,
        learning_starts=1000,
        target_update_interval=10,
        train_freq=256,
        gradient_steps=128,
        exploration_fraction=0.16,
        exploration_final_eps=0.04,
        schedule_steps=50_000,
        hidden=(256, 256),
    ),
    "LunarLander-v3": CONTROL_DQN,
    "Acrobot-v1": CONTROL_DQN,
}
ZOO_PPO = {
    "CartPole-v1": PpoSettings(
        envs=8,
        n_steps=32,
        batch_size=256,
        gae_lambda=0.8,
        gamma=0.98,
        n_epochs=20,
        learning_rate=1e-3,
        is_linear=True,
        schedule_steps=100_000,
    ),
    "LunarLander-v3": PpoSettings(envs=16, n_steps=1024, gae_lambda=0.98, gamma=0.999, n_epochs=4, ent_coef=0.01),
    "Acrobot-v1": PpoSettings(envs=16, n_steps=256, gae_lambda=0.94, n_epochs=4, normalize=True),
}
TIANSHOU_DQN = {
    "CartPole-v1": TianshouDqnSettings(),
    "LunarLander-v3": TianshouDqnSettings(
        batch_size=128,
        envs=16,
        hidden=(128, 128),
        dueling_hidden=(128, 128),
        learning_rate=0.013,
        buffer_size=100_000,
        gamma=0.99,
        n_step=4,
        target_update_freq=500,
        steps_per_update=16,
        has_first_steps=True,
        eps=0.73,
        eps_decay=5e-6,
        eps_inference=0.01,
    ),
    "Acrobot-v1": TianshouDqnSettings(
        hidden=(128,),
        dueling_hidden=(128, 128),
        gamma=0.95,
        steps_per_update=100,
        has_first_steps=True,
        eps=0.5,
        eps_linear=(100_000, 500_000),
    ),
}

Kind = TypeVar("Kind", bound=Settings)


def fill_in(arguments: argparse.Namespace, settings: Kind) -> Kind:
    """Return the settings with what the command line states, and note for the result what it leaves open."""
    arguments.batch_size = arguments.batch_size or settings.batch_size
    arguments.envs = arguments.envs or settings.envs
    # Throughput is compared with the same network for all.
    arguments.hidden = settings.hidden if arguments.window is None else protocol.HIDDEN
    return replace(settings, batch_size=arguments.batch_size, envs=arguments.envs, hidden=arguments.hidden)
