# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["stable-baselines3==2.9.2", "torch", "gymnasium[box2d,mujoco]==1.4.0", "mujoco==3.17.0"]
# [tool.peer]
# title = "Stable-Baselines3"
# actions = "continuous"
# ///
"""SAC of Stable-Baselines3, run by the protocol.

Its defaults: https://stable-baselines3.readthedocs.io/en/master/modules/sac.html (one environment, train_freq 1,
gradient_steps 1, two layers of 256, batch 256, 100 random steps). Several environments keep that ratio with as many
gradient_steps, in a DummyVecEnv, which its docstring recommends for environments that are cheap to step; those that
are not (--subprocesses) in a SubprocVecEnv:
https://stable-baselines3.readthedocs.io/en/master/guide/vec_envs.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import protocol
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

if TYPE_CHECKING:
    import argparse

    import numpy as np
    from numpy.typing import NDArray
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

NO_STEP_LIMIT = 10**9  # the protocol ends the run; the learning rate does not depend on this number


class Report(BaseCallback):
    """Reports to the protocol after each step of all environments."""

    def __init__(self, trial: protocol.Trial) -> None:
        super().__init__()
        self._trial = trial

    def _on_step(self) -> bool:
        return self._trial.goes_on(self.num_timesteps, self._updates(), self._act)

    def _updates(self) -> int:
        return self.model._n_updates  # type: ignore[attr-defined]  # neither library has a public name for it

    def _act(self, observations: NDArray[np.float32]) -> NDArray[Any]:
        return self.model.predict(observations, deterministic=True)[0]


def make_envs(arguments: argparse.Namespace) -> VecEnv:
    return make_vec_env(
        arguments.env,
        n_envs=arguments.envs,
        seed=arguments.seed,
        vec_env_cls=SubprocVecEnv if arguments.subprocesses else DummyVecEnv,
    )


def train(sac: type[OffPolicyAlgorithm], trial: protocol.Trial, **options: Any) -> OffPolicyAlgorithm:
    """Train one of the two libraries that share this interface until the protocol ends it."""
    arguments = trial.arguments
    model = sac(
        "MlpPolicy",
        make_envs(arguments),
        seed=arguments.seed,
        batch_size=arguments.batch_size,
        learning_rate=protocol.LEARNING_RATE,
        train_freq=1,
        gradient_steps=arguments.updates_per_vector_step,
        policy_kwargs={"net_arch": list(protocol.HIDDEN)},
        **options,
    )
    model.learn(NO_STEP_LIMIT, callback=Report(trial))
    return model


def main() -> None:
    import torch
    from stable_baselines3 import SAC

    arguments = protocol.parse_arguments("SAC of Stable-Baselines3.")
    trial = protocol.Trial("sb3", ("stable-baselines3",), arguments)
    model = train(SAC, trial, device=arguments.device)
    trial.finish(str(model.device), torch_threads=torch.get_num_threads())


if __name__ == "__main__":
    main()
