# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["gymnasium[box2d,mujoco]==1.4.0", "torch", "mujoco==3.17.0"]
# [tool.peer]
# title = "CleanRL-style DQN"
# actions = "discrete"
# ///
"""DQN in the manner of CleanRL, run by the protocol. It is not CleanRL, which cannot be installed (README.md).

It was written for this comparison: one environment, one file, plain PyTorch, with the hyperparameters that CleanRL
documents for its dqn.py and uses for all tasks of classic control: https://docs.cleanrl.dev/rl-algorithms/dqn/. They
are for 500,000 steps: random choices become fewer over the first half of them, and nothing is learned before step
10,000. So its figures say what such a file can do, and nothing about how fast CleanRL's own is.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import protocol
import torch
import tuned
from numpy.typing import NDArray
from torch import Tensor, nn

SETTINGS = tuned.DqnSettings(
    learning_rate=2.5e-4,
    batch_size=128,
    buffer_size=10_000,
    learning_starts=10_000,
    target_update_interval=500,
    train_freq=10,
    exploration_fraction=0.5,
    exploration_final_eps=0.05,
    schedule_steps=500_000,
    hidden=(120, 84),
)


class Replay:
    """A ring of transitions. An episode that was truncated goes on after it, as far as values are concerned."""

    def __init__(self, rows: int, obs_dim: int, generator: np.random.Generator) -> None:
        self._observations = np.zeros((rows, obs_dim), np.float32)
        self._next_observations = np.zeros((rows, obs_dim), np.float32)
        self._actions = np.zeros(rows, np.int64)
        self._rewards = np.zeros(rows, np.float32)
        self._terminated = np.zeros(rows, np.float32)
        self._generator, self._added = generator, 0

    def add(self, observation: Any, action: int, reward: float, next_observation: Any, terminated: bool) -> None:
        row = self._added % len(self._actions)
        self._observations[row], self._next_observations[row] = observation, next_observation
        self._actions[row], self._rewards[row], self._terminated[row] = action, reward, terminated
        self._added += 1

    def sample(self, batch_size: int, device: str) -> list[Tensor]:
        rows = self._generator.integers(min(self._added, len(self._actions)), size=batch_size)
        columns = (self._observations, self._actions, self._rewards, self._next_observations, self._terminated)
        return [torch.as_tensor(column[rows], device=device) for column in columns]


def make_network(obs_dim: int, hidden: tuple[int, ...], choices: int) -> nn.Sequential:
    widths, layers = (obs_dim, *hidden), []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], choices))


def train(trial: protocol.Trial, settings: tuned.DqnSettings, device: str) -> None:
    """Step and update in turn until the protocol ends it."""
    arguments, generator = trial.arguments, np.random.default_rng(trial.arguments.seed)
    env = gym.make(arguments.env)
    obs_dim, choices = env.observation_space.shape[0], int(env.action_space.n)  # type: ignore[index, attr-defined]
    network = make_network(obs_dim, settings.hidden, choices).to(device)
    target = deepcopy(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
    replay = Replay(settings.buffer_size, obs_dim, generator)

    def act(observations: NDArray[np.float32]) -> NDArray[Any]:
        with torch.no_grad():
            return np.asarray(network(torch.as_tensor(observations, device=device)).argmax(1).cpu().numpy())

    observation, _ = env.reset(seed=arguments.seed)
    env_steps = updates = 0
    while trial.goes_on(env_steps, updates, act):
        is_random = generator.random() < settings.eps_at(env_steps)
        action = int(generator.integers(choices)) if is_random else int(act(observation[None])[0])
        next_observation, reward, terminated, truncated, _ = env.step(action)
        replay.add(observation, action, float(reward), next_observation, terminated)
        observation = env.reset()[0] if terminated or truncated else next_observation
        env_steps += 1
        if env_steps <= settings.learning_starts:
            continue
        if env_steps % settings.train_freq == 0:
            for _ in range(settings.gradient_steps):
                update(network, target, optimizer, replay.sample(settings.batch_size, device), settings.gamma)
            updates += settings.gradient_steps
        if env_steps % settings.target_update_interval == 0:
            target.load_state_dict(network.state_dict())


def update(
    network: nn.Module, target: nn.Module, optimizer: torch.optim.Optimizer, batch: list[Tensor], gamma: float
) -> None:
    observations, actions, rewards, next_observations, terminated = batch
    with torch.no_grad():
        values = rewards + gamma * (1.0 - terminated) * target(next_observations).amax(1)
    loss = nn.functional.mse_loss(network(observations).gather(1, actions[:, None])[:, 0], values)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main() -> None:
    arguments = protocol.parse_arguments("DQN in the manner of CleanRL.", envs=None, batch_size=None)
    if arguments.envs not in (None, 1) or arguments.updates_per_vector_step is not None:
        raise SystemExit("--envs and --updates-per-vector-step: it has one environment, as CleanRL's DQN")
    settings = tuned.fill_in(arguments, SETTINGS)
    trial = protocol.Trial("cleanrl-dqn", (), arguments)
    torch.manual_seed(arguments.seed)
    device = "cuda" if arguments.device != "cpu" and torch.cuda.is_available() else "cpu"
    train(trial, settings, device)
    trial.finish(device, torch_threads=torch.get_num_threads(), **asdict(settings))


if __name__ == "__main__":
    main()
