# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = [
#   "sbx-rl==0.28.0", "stable-baselines3==2.9.2", "torch", "gymnasium[box2d,mujoco]==1.4.0", "mujoco==3.17.0",
# ]
# [tool.peer]
# title = "SBX DQN"
# actions = "discrete"
# ///
"""DQN of SBX (Stable-Baselines3 in JAX), run by the protocol.

The settings that the RL Zoo has tuned for the task (tuned.py, which cites them), which SBX takes as they are:
https://github.com/araffin/sbx#using-sbx-with-the-rl-zoo. For other tasks its defaults, which are those of
Stable-Baselines3 but for the interval of the target network.
"""

from __future__ import annotations

import os
from dataclasses import asdict

import protocol
import tuned

DEFAULTS = tuned.DqnSettings(target_update_interval=1000)


def main() -> None:
    arguments = protocol.parse_arguments("DQN of SBX.", envs=None, batch_size=None)
    if arguments.device != "auto":
        os.environ["JAX_PLATFORMS"] = arguments.device  # before JAX is imported
    import jax
    from sb3_dqn import train
    from sbx import DQN

    settings = tuned.fill_in(arguments, tuned.ZOO_DQN.get(arguments.env, DEFAULTS))
    trial = protocol.Trial("sbx-dqn", ("sbx-rl", "stable-baselines3"), arguments)
    train(DQN, trial, settings)
    trial.finish(str(jax.devices()[0]), **asdict(settings))


if __name__ == "__main__":
    main()
