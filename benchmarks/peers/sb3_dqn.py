# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["stable-baselines3==2.9.2", "torch", "gymnasium[box2d,mujoco]==1.4.0", "mujoco==3.17.0"]
# [tool.peer]
# title = "Stable-Baselines3 DQN"
# actions = "discrete"
# ///
"""DQN of Stable-Baselines3, run by the protocol.

The settings that the RL Zoo has tuned for the task (tuned.py, which cites them), or else its defaults:
https://stable-baselines3.readthedocs.io/en/master/modules/dqn.html. The share of random choices follows the tuned
length of the run, whatever limit the protocol sets, and stays at its last value after that.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import protocol
import tuned
from sb3_sac import NO_STEP_LIMIT, Report, make_envs

if TYPE_CHECKING:
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm


def train(
    dqn: type[OffPolicyAlgorithm], trial: protocol.Trial, settings: tuned.DqnSettings, **options: Any
) -> OffPolicyAlgorithm:
    """Train one of the two libraries that share this interface until the protocol ends it."""
    arguments = trial.arguments
    updates = arguments.updates_per_vector_step
    model = dqn(
        "MlpPolicy",
        make_envs(arguments),
        seed=arguments.seed,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        buffer_size=settings.buffer_size,
        learning_starts=settings.learning_starts,
        gamma=settings.gamma,
        target_update_interval=settings.target_update_interval,
        train_freq=settings.train_freq if updates is None else 1,
        gradient_steps=settings.gradient_steps if updates is None else updates,
        # Of the steps that learn() is told.
        exploration_fraction=settings.exploration_fraction * settings.schedule_steps / NO_STEP_LIMIT,
        exploration_final_eps=settings.exploration_final_eps,
        policy_kwargs={"net_arch": list(settings.hidden)},
        **options,
    )
    model.learn(NO_STEP_LIMIT, callback=Report(trial))
    return model


def main() -> None:
    import torch
    from stable_baselines3 import DQN

    arguments = protocol.parse_arguments("DQN of Stable-Baselines3.", envs=None, batch_size=None)
    settings = tuned.fill_in(arguments, tuned.ZOO_DQN.get(arguments.env, tuned.DqnSettings()))
    trial = protocol.Trial("sb3-dqn", ("stable-baselines3",), arguments)
    model = train(DQN, trial, settings, device=arguments.device)
    trial.finish(str(model.device), torch_threads=torch.get_num_threads(), **asdict(settings))


if __name__ == "__main__":
    main()
