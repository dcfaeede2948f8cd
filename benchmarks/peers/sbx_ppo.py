# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = [
#   "sbx-rl==0.28.0", "stable-baselines3==2.9.2", "torch", "gymnasium[box2d,mujoco]==1.4.0", "mujoco==3.17.0",
# ]
# [tool.peer]
# title = "SBX PPO"
# actions = "discrete"
# ///
"""PPO of SBX (Stable-Baselines3 in JAX), run by the protocol.

The settings that the RL Zoo has tuned for the task (tuned.py, which cites them), which SBX takes as they are:
https://github.com/araffin/sbx#using-sbx-with-the-rl-zoo. For other tasks its defaults, which are those of
Stable-Baselines3.
"""

from __future__ import annotations

import os
from dataclasses import asdict

import protocol
import tuned


def main() -> None:
    arguments = protocol.parse_arguments("PPO of SBX.", envs=None, batch_size=None)
    if arguments.device != "auto":
        os.environ["JAX_PLATFORMS"] = arguments.device  # before JAX is imported
    import jax
    from sb3_ppo import train
    from sbx import PPO

    settings = tuned.fill_in(arguments, tuned.ZOO_PPO.get(arguments.env, tuned.PpoSettings()))
    trial = protocol.Trial("sbx-ppo", ("sbx-rl", "stable-baselines3"), arguments)
    train(PPO, trial, settings)
    trial.finish(str(jax.devices()[0]), **asdict(settings))


if __name__ == "__main__":
    main()
