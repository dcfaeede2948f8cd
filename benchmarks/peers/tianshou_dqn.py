# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["tianshou==2.0.1", "torch", "gymnasium[box2d,mujoco]==1.4.0", "mujoco==3.17.0"]
# [tool.peer]
# title = "Tianshou DQN"
# actions = "discrete"
# ///
"""DQN of Tianshou, run by the protocol.

Its parts, put together as in its examples for CartPole, LunarLander and Acrobot, with the settings that those have
(tuned.py, which cites them): double DQN, n-step returns, and for the last two a dueling network. Other tasks get
those of the first: https://github.com/thu-ml/tianshou/blob/master/examples/discrete/discrete_dqn.py. In a window the
network is plain, without the two heads.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import protocol
import torch
import tuned
from numpy.typing import NDArray
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.utils.net.common import Net
from tianshou.utils.torch_utils import policy_within_training_step, torch_train_mode


def main() -> None:
    arguments = protocol.parse_arguments("DQN of Tianshou.", envs=None, batch_size=None)
    settings = tuned.fill_in(arguments, tuned.TIANSHOU_DQN.get(arguments.env, tuned.TianshouDqnSettings()))
    trial = protocol.Trial("tianshou-dqn", ("tianshou",), arguments)
    np.random.seed(arguments.seed)  # it samples its replay, and chooses at random, with NumPy's global generator
    torch.manual_seed(arguments.seed)
    device = "cuda" if arguments.device != "cpu" and torch.cuda.is_available() else "cpu"
    is_dueling = arguments.window is None
    train(trial, make_algorithm(arguments.env, settings, device, is_dueling), settings)
    trial.finish(device, torch_threads=torch.get_num_threads(), **asdict(settings))


def make_algorithm(env_id: str, settings: tuned.TianshouDqnSettings, device: str, is_dueling: bool) -> DQN[Any]:
    env = gym.make(env_id)
    head = {"hidden_sizes": settings.dueling_hidden}
    net = Net(
        state_shape=env.observation_space.shape,
        action_shape=env.action_space.n,  # type: ignore[attr-defined]
        hidden_sizes=settings.hidden,
        dueling_param=(head, head) if settings.dueling_hidden and is_dueling else None,
    )
    return DQN(
        policy=DiscreteQLearningPolicy(
            model=net.to(device),
            action_space=env.action_space,
            eps_training=settings.eps,
            eps_inference=settings.eps_inference,
        ),
        optim=AdamOptimizerFactory(lr=settings.learning_rate),
        gamma=settings.gamma,
        n_step_return_horizon=settings.n_step,
        target_update_freq=settings.target_update_freq,
    )


def train(trial: protocol.Trial, algorithm: DQN[Any], settings: tuned.TianshouDqnSettings) -> None:
    """Collect and update in turn, as its trainer does, until the protocol ends it."""
    arguments, policy = trial.arguments, algorithm.policy
    envs = DummyVectorEnv([partial(gym.make, arguments.env) for _ in range(settings.envs)])
    envs.seed(arguments.seed)
    replay = VectorReplayBuffer(settings.buffer_size, settings.envs)
    collector = Collector[Any](algorithm, envs, replay, exploration_noise=True)
    collector.reset()
    env_steps = updates = 0
    updates_per_round = arguments.updates_per_vector_step or 1
    steps = settings.envs if arguments.updates_per_vector_step else settings.steps_per_update
    steps_per_round = -(-steps // settings.envs) * settings.envs

    def act(observations: NDArray[np.float32]) -> NDArray[Any]:
        with torch.no_grad(), torch_train_mode(policy, enabled=False):
            return np.asarray(policy(Batch(obs=observations, info={})).act)

    if settings.has_first_steps:
        env_steps += collector.collect(n_step=settings.batch_size * settings.envs).n_collected_steps
    with policy_within_training_step(policy):
        while trial.goes_on(env_steps, updates, act):
            policy.set_eps_training(settings.eps_at(env_steps))
            env_steps += collector.collect(n_step=steps_per_round).n_collected_steps
            with torch_train_mode(algorithm, enabled=True):
                for _ in range(updates_per_round):
                    algorithm.update(buffer=replay, sample_size=settings.batch_size)
            updates += updates_per_round


if __name__ == "__main__":
    main()
