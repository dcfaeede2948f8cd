"""What MuJoCo need not do is left out of a step, where that is known to change no row."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import mujoco
import pytest

from spreeze.config.env_spec import EnvSpec
from spreeze.environments.batch import EnvBatch
from spreeze.environments.mujoco import skip_islands

# One process each, because a clock is a process's own.
PLAY = """
import itertools
import sys
import mujoco
import numpy as np
from spreeze.environments.batch import EnvBatch
from spreeze.config.env_spec import EnvSpec

if sys.argv[2] == "own clock":
    seconds = itertools.count()
    mujoco.set_mjcb_time(lambda: float(next(seconds)))
envs = EnvBatch(EnvSpec(sys.argv[1], backend="gymnasium"), 1, [0])
for _ in range(5):
    envs.step(np.zeros((1, envs.spaces.action_size), np.float32))
data = envs._envs[0].unwrapped.data
print(mujoco.get_mjcb_time() is not None, sum(timer.duration for timer in data.timer) > 0)
"""


def play(name: str, clock: str = "theirs") -> list[str]:
    done = subprocess.run([sys.executable, "-c", PLAY, name, clock], capture_output=True, text=True, check=True)
    return done.stdout.split()


def model_of(robots: int) -> Any:
    body = "<body><freejoint/><geom size='1'/></body>"
    return mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{body * robots}</worldbody></mujoco>")


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Swimmer-v5"])
def test_the_stages_of_a_step_are_not_timed(name: str) -> None:
    assert play(name) == ["False", "False"]


def test_a_clock_of_ones_own_stays() -> None:
    assert play("HalfCheetah-v5", "own clock") == ["True", "True"]


@pytest.mark.parametrize(("robots", "is_left_out"), [(1, True), (2, False)])
def test_one_robot_is_not_searched_for_islands(robots: int, is_left_out: bool) -> None:
    model = model_of(robots)
    skip_islands(model)
    assert bool(model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_ISLAND) == is_left_out


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Humanoid-v5"])
def test_robots_that_are_stepped_together_are_searched_for_none(name: str) -> None:
    envs = EnvBatch(EnvSpec(name, backend="mujoco"), 2, [0, 1])
    assert envs._together is not None
    assert envs._together._model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_ISLAND
    envs.close()
