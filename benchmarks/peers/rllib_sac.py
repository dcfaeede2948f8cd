# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["ray[rllib]==2.60.0", "torch", "gymnasium[mujoco]", "mujoco==3.17.0"]
# [tool.peer]
# title = "RLlib"
# actions = "continuous"
# ///
"""SAC of RLlib on its new API stack, run by the protocol.

Learning rates, replay, n-step returns and network are those of its tuned example:
https://github.com/ray-project/ray/blob/master/rllib/tuned_examples/sac/pendulum_sac.py. The EnvRunners
(https://docs.ray.io/en/latest/rllib/package_ref/doc/ray.rllib.algorithms.algorithm_config.AlgorithmConfig.env_runners.html)
are one for each core beyond two; on two cores or fewer the one in the main process, which saves it the remote calls.
The training intensity is what SACConfig calls the "natural" one: a batch for each round of sampling, which is five
steps, the longest of its n-step returns; --updates-per-vector-step sets another.
"""

from __future__ import annotations

import argparse
import logging
import os
from typing import Any

import numpy as np
import protocol
import ray
import torch
from numpy.typing import NDArray
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.utils.spaces.space_utils import unsquash_action

MOST_RUNNERS = 8  # a round waits for all of them, and one learner does not keep up with more
REPLAY = {"type": "PrioritizedEpisodeReplayBuffer", "capacity": 1_000_000, "alpha": 1.0, "beta": 0.0}


def main() -> None:
    arguments = protocol.parse_arguments("SAC of RLlib.", envs=None)
    cores = len(os.sched_getaffinity(0))
    runners = min(MOST_RUNNERS, cores - 2) if cores > 2 else 0
    envs_each = -(-(arguments.envs or 1) // max(1, runners))
    arguments.envs = envs_each * max(1, runners)
    trial = protocol.Trial("rllib", ("ray",), arguments)
    ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    device = "cuda" if arguments.device != "cpu" and torch.cuda.is_available() else "cpu"
    config = configure(arguments, runners, envs_each, device)
    algorithm = config.build_algo()
    train(algorithm, trial)
    algorithm.stop()
    ray.shutdown()
    fragment = config.get_rollout_fragment_length()
    trial.finish(device, env_runners=runners, rollout_fragment=fragment, torch_threads=torch.get_num_threads())


def configure(arguments: argparse.Namespace, runners: int, envs_each: int, device: str) -> SACConfig:
    updates = arguments.updates_per_vector_step
    # RLlib counts the main process among those that sample, whether it does or not.
    intensity = None if updates is None else updates * arguments.batch_size / (envs_each * (runners + 1))
    return (
        SACConfig()
        .environment(arguments.env)
        .env_runners(num_env_runners=runners, num_envs_per_env_runner=envs_each)
        .learners(num_learners=0, num_gpus_per_learner=1 if device == "cuda" else 0)
        .training(
            actor_lr=2e-4,
            critic_lr=8e-4,
            alpha_lr=9e-4,
            initial_alpha=1.001,
            n_step=(2, 5),
            train_batch_size_per_learner=arguments.batch_size,
            training_intensity=intensity,
            target_network_update_freq=1,
            replay_buffer_config=REPLAY,
            num_steps_sampled_before_learning_starts=256,
        )
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=list(protocol.HIDDEN),
                fcnet_activation="relu",
                fcnet_kernel_initializer=torch.nn.init.xavier_uniform_,
                head_fcnet_hiddens=[],
                head_fcnet_activation=None,
                head_fcnet_kernel_initializer="orthogonal_",
                head_fcnet_kernel_initializer_kwargs={"gain": 0.01},
            )
        )
        # A second each: its default of a hundred steps would come back after ten.
        .reporting(min_time_s_per_iteration=1, min_sample_timesteps_per_iteration=0)
        .debugging(seed=arguments.seed, log_level="ERROR")
    )


def train(algorithm: Any, trial: protocol.Trial) -> None:
    module = algorithm.get_module()
    space, device = module.action_space, next(module.parameters()).device

    def act(observations: NDArray[np.float32]) -> NDArray[Any]:
        batch = {"obs": torch.from_numpy(observations).to(device)}
        with torch.no_grad():
            inputs = module.forward_inference(batch)["action_dist_inputs"]  # (episodes, 2 * act_dim)
        # Its own deterministic action is the mean before the tanh, clipped; that of the trained policy is after it.
        means = torch.tanh(inputs.chunk(2, dim=-1)[0])  # (episodes, act_dim)
        return np.asarray(unsquash_action(means.cpu().numpy(), space))

    env_steps = updates = 0
    while trial.goes_on(env_steps, updates, act):
        result = algorithm.train()
        env_steps = result["env_runners"]["num_env_steps_sampled_lifetime"]
        # Before the first update there is nothing of the learner; it counts rows, not updates.
        trained = result.get("learners", {}).get("__all_modules__", {})
        updates = trained.get("num_module_steps_trained_lifetime", 0) // trial.arguments.batch_size


if __name__ == "__main__":
    main()
