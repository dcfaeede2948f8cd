# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = [
#   "sbx-rl==0.28.0", "stable-baselines3==2.9.2", "torch", "gymnasium[box2d,mujoco]==1.4.0", "mujoco==3.17.0",
# ]
# [tool.peer]
# title = "SBX"
# actions = "continuous"
# ///
"""SAC of SBX (Stable-Baselines3 in JAX), run by the protocol.

Its defaults are those of Stable-Baselines3, as in its first example: https://github.com/araffin/sbx#example. All
updates of a step are one compiled call, so on a GPU several of them a step are its fastest way (`gradient_steps`):
--envs 16 --updates-per-vector-step 16. It runs where JAX does: on the CPU, unless JAX was installed for a GPU.
"""

from __future__ import annotations

import os

import protocol


def main() -> None:
    arguments = protocol.parse_arguments("SAC of SBX.")
    if arguments.device != "auto":
        os.environ["JAX_PLATFORMS"] = arguments.device  # before JAX is imported
    import jax
    from sb3_sac import train
    from sbx import SAC

    trial = protocol.Trial("sbx", ("sbx-rl", "stable-baselines3"), arguments)
    train(SAC, trial)
    trial.finish(str(jax.devices()[0]))


if __name__ == "__main__":
    main()
