# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["stable-baselines3==2.9.2", "torch", "gymnasium[box2d,mujoco]==1.4.0", "mujoco==3.17.0"]
# [tool.peer]
# title = "Stable-Baselines3 PPO"
# actions = "discrete"
# ///
"""PPO of Stable-Baselines3, run by the protocol.

The settings that the RL Zoo has tuned for the task (tuned.py, which cites them), or else its defaults:
https://stable-baselines3.readthedocs.io/en/master/modules/ppo.html. What is scheduled follows the tuned length of
the run, whatever limit the protocol sets. The environments are in a DummyVecEnv, as the Zoo has them. Updates are
gradient steps; the protocol hears of them with the next environment step, after a round of hundreds.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import protocol
import tuned
from sb3_sac import NO_STEP_LIMIT, Report, make_envs
from stable_baselines3.common.vec_env import VecNormalize

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm


class PpoReport(Report):
    """Counts gradient steps, where the library counts epochs, and shows the policy what it has learned from."""

    def __init__(self, trial: protocol.Trial, steps_per_epoch: int) -> None:
        super().__init__(trial)
        self._steps_per_epoch = steps_per_epoch

    def _updates(self) -> int:
        return super()._updates() * self._steps_per_epoch

    def _act(self, observations: NDArray[np.float32]) -> NDArray[Any]:
        normalizer = self.model.get_vec_normalize_env()
        return super()._act(observations if normalizer is None else normalizer.normalize_obs(observations))


def train(
    ppo: type[OnPolicyAlgorithm], trial: protocol.Trial, settings: tuned.PpoSettings, **options: Any
) -> OnPolicyAlgorithm:
    """Train one of the two libraries that share this interface until the protocol ends it."""
    arguments = trial.arguments
    if arguments.updates_per_vector_step is not None:
        raise ValueError("--updates-per-vector-step: PPO has none, it updates after n_steps of all environments")
    envs = make_envs(arguments)
    model = ppo(
        "MlpPolicy",
        VecNormalize(envs, gamma=settings.gamma) if settings.normalize else envs,
        seed=arguments.seed,
        batch_size=settings.batch_size,
        learning_rate=settings.scheduled(settings.learning_rate, NO_STEP_LIMIT),
        n_steps=settings.n_steps,
        n_epochs=settings.n_epochs,
        gamma=settings.gamma,
        gae_lambda=settings.gae_lambda,
        clip_range=settings.scheduled(settings.clip_range, NO_STEP_LIMIT),
        ent_coef=settings.ent_coef,
        policy_kwargs={"net_arch": list(settings.hidden)},
        **options,
    )
    steps_per_epoch = -(-settings.n_steps * settings.envs // settings.batch_size)
    model.learn(NO_STEP_LIMIT, callback=PpoReport(trial, steps_per_epoch))
    return model


def main() -> None:
    import torch
    from stable_baselines3 import PPO

    arguments = protocol.parse_arguments("PPO of Stable-Baselines3.", envs=None, batch_size=None)
    settings = tuned.fill_in(arguments, tuned.ZOO_PPO.get(arguments.env, tuned.PpoSettings()))
    trial = protocol.Trial("sb3-ppo", ("stable-baselines3",), arguments)
    model = train(PPO, trial, settings, device=arguments.device)
    trial.finish(str(model.device), torch_threads=torch.get_num_threads(), **asdict(settings))


if __name__ == "__main__":
    main()
