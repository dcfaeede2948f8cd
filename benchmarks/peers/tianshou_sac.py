# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["tianshou==2.0.1", "torch", "gymnasium[box2d,mujoco]==1.4.0", "mujoco==3.17.0"]
# [tool.peer]
# title = "Tianshou"
# actions = "continuous"
# ///
"""SAC of Tianshou, run by the protocol.

Its parts, put together as in its MuJoCo example: https://github.com/thu-ml/tianshou/blob/master/examples/mujoco/mujoco_sac.py
(one environment, one update a step, learning rates 1e-3, 1e-3 and 3e-4 for the temperature, which it adapts with
--auto-alpha, batch 256). One figure is for runs of a million steps, and smaller here, so that it learns sooner: 1,000
random steps instead of 10,000.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import protocol
import torch
from numpy.typing import NDArray
from tianshou.algorithm import SAC
from tianshou.algorithm.modelfree.sac import AutoAlpha, SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, Collector, ReplayBuffer, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.torch_utils import policy_within_training_step, torch_train_mode

REPLAY_ROWS = 1_000_000
RANDOM_STEPS = 1_000


def main() -> None:
    arguments = protocol.parse_arguments("SAC of Tianshou.")
    trial = protocol.Trial("tianshou", ("tianshou",), arguments)
    np.random.seed(arguments.seed)  # it samples its replay with NumPy's global generator
    torch.manual_seed(arguments.seed)
    device = "cuda" if arguments.device != "cpu" and torch.cuda.is_available() else "cpu"
    train(trial, make_algorithm(arguments, device))
    trial.finish(device, torch_threads=torch.get_num_threads())


def make_algorithm(arguments: argparse.Namespace, device: str) -> SAC[Any]:
    env = gym.make(arguments.env)
    net = partial(Net, state_shape=env.observation_space.shape, hidden_sizes=protocol.HIDDEN)
    actor = ContinuousActorProbabilistic(
        preprocess_net=net(), action_shape=env.action_space.shape, unbounded=True, conditioned_sigma=True
    )
    critics = [
        ContinuousCritic(preprocess_net=net(action_shape=env.action_space.shape, concat=True)) for _ in range(2)
    ]
    alpha = AutoAlpha(-float(np.prod(env.action_space.shape)), 0.0, AdamOptimizerFactory(lr=3e-4))
    return SAC(
        policy=SACPolicy(actor=actor.to(device), action_space=env.action_space),
        policy_optim=AdamOptimizerFactory(lr=1e-3),
        critic=critics[0].to(device),
        critic_optim=AdamOptimizerFactory(lr=1e-3),
        critic2=critics[1].to(device),
        critic2_optim=AdamOptimizerFactory(lr=1e-3),
        alpha=alpha.to(device),
    )


def train(trial: protocol.Trial, algorithm: SAC[Any]) -> None:
    """Collect and update in turn, as its trainer does, until the protocol ends it."""
    arguments, policy = trial.arguments, algorithm.policy
    envs = DummyVectorEnv([partial(gym.make, arguments.env) for _ in range(arguments.envs)])
    envs.seed(arguments.seed)
    is_single = arguments.envs == 1
    replay = ReplayBuffer(REPLAY_ROWS) if is_single else VectorReplayBuffer(REPLAY_ROWS, arguments.envs)

    def act(observations: NDArray[np.float32]) -> NDArray[Any]:
        with torch.no_grad(), torch_train_mode(policy, enabled=False):
            return np.asarray(policy.map_action(policy(Batch(obs=observations, info={})).act.cpu().numpy()))

    with policy_within_training_step(policy):
        collector = Collector[Any](policy, envs, replay)
        collector.reset()
        collector.collect(n_step=RANDOM_STEPS, random=True)
        env_steps, updates = RANDOM_STEPS, 0
        while trial.goes_on(env_steps, updates, act):
            env_steps += collector.collect(n_step=arguments.envs).n_collected_steps
            with torch_train_mode(algorithm, enabled=True):
                for _ in range(arguments.updates_per_vector_step):
                    algorithm.update(buffer=replay, sample_size=arguments.batch_size)
            updates += arguments.updates_per_vector_step


if __name__ == "__main__":
    main()
