"""A run is resumed with the environment that it was trained on, or not at all."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import spreeze
from spreeze.errors import RunFolderError
from spreeze.runs.checkpoint_format import newest_checkpoints

if TYPE_CHECKING:
    from conftest import Spreeze

SMALL: dict[str, Any] = {
    "serial": True,
    "quiet": True,
    "device": "cpu",
    "tensorboard": False,
    "envs_per_sampler": 2,
    "hidden": (8,),
    "batch_size": 8,
    "warmup_steps": 20,
    "eval_episodes": 1,
    "max_episode_steps": 10,
}
RUN = Path(__file__).parent.parent / "fixtures" / "runs-0.1" / "sac-pendulum"


class Robot(gymnasium.Env[Any, Any]):
    """Has the spaces that it is given."""

    def __init__(self, action: spaces.Space[Any], observation: spaces.Space[Any]) -> None:
        self.action_space, self.observation_space = action, observation

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), float(action[0]), False, False, {}


ACTION = spaces.Box(-1, 1, (2,))
KEYS = {"angle": spaces.Box(-3, 3, (2,)), "mode": spaces.Discrete(3)}


def robot(action: spaces.Space[Any] = ACTION, **observation: spaces.Space[Any]) -> Callable[..., Robot]:
    return lambda: Robot(action, spaces.Dict({**KEYS, **observation}))


def content_of(run: Path) -> dict[str, tuple[bytes, int]]:
    """Every byte of a run folder, and when each file was written."""
    files = (path for path in sorted(run.rglob("*")) if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def events_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def environment_of(run: Path) -> dict[str, Any]:
    environment: dict[str, Any] = newest_checkpoints(run / "checkpoint")[0].progress["environment"]
    return environment


def change_config(run: Path, **fields: Any) -> None:
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, **fields}))


@pytest.fixture(scope="module")
def robot_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("robot") / "run"
    spreeze.train(robot(), **SMALL, max_updates=20, run_dir=run)
    return run


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (robot(spaces.Box(-2, 2, (2,))), "action low was -1.0 and is -2.0 now"),
        (robot(spaces.Box(np.array([-1, -1], np.float32), np.array([1, 0.5], np.float32))), "action high[1] was 1.0"),
        (robot(spaces.Box(-1, 1, (2,), np.float64)), 'action dtype was "float32" and is "float64" now'),
        (robot(angle=spaces.Box(-3, 4, (2,))), "observation[angle] high was 3.0 and is 4.0 now"),
        (robot(angle=spaces.Box(-3, 3, (2,), np.float64)), 'observation[angle] dtype was "float32" and is "float64"'),
        (robot(mode=spaces.Discrete(3, start=1)), "observation[mode] start was 0 and is 1 now"),
        (robot(mode=spaces.Box(-1, 1, (3,))), 'observation[mode] space was "Discrete" and is "Box" now'),
        (robot(tilt=spaces.Discrete(2)), 'is Dict of ["angle", "mode", "tilt"] now'),
    ],
)
def test_other_spaces_are_refused_and_nothing_is_changed(robot_run: Path, changed: Any, said: str) -> None:
    before = content_of(robot_run)
    with pytest.raises(RunFolderError) as refused:
        spreeze.resume(robot_run, env=changed, max_updates=40)
    line = str(refused.value)
    assert said in line
    assert line.endswith("; pass the env that it was trained on, or start a new run")
    assert refused.value.exit_code == 2
    assert content_of(robot_run) == before


def test_the_same_spaces_are_resumed(robot_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(robot_run, tmp_path / "run"))
    assert spreeze.resume(run, env=robot(), max_updates=40).updates == 40
    assert not [event for event in events_of(run) if event["kind"] == "warning" and "now" in event["reason"]]
    assert environment_of(run) == environment_of(robot_run)


def test_other_arguments_of_the_same_environment_are_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    spreeze.train("Pendulum-v1", **SMALL, env_kwargs={"g": 9.0}, max_updates=20, run_dir=run)
    change_config(run, env_kwargs='{"g": 3.0}')
    before = content_of(run)
    with pytest.raises(
        RunFolderError, match=r"argument g was 9\.0 and is 3\.0 now; set env and env_kwargs in .* back"
    ):
        spreeze.resume(run, max_updates=40)
    with pytest.raises(RunFolderError, match=r"argument g was 9\.0 and is 3\.0 now; pass the env"):
        spreeze.resume(run, env=lambda **kwargs: gymnasium.make("Pendulum-v1", **kwargs), max_updates=40)
    assert content_of(run) == before
    change_config(run, env_kwargs='{"g": 9.0}')
    assert spreeze.resume(run, max_updates=40).updates == 40


def test_another_version_of_a_package_is_told_once_and_no_reason_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, installed = tmp_path / "run", importlib.metadata.version("gymnasium")
    spreeze.train("Pendulum-v1", **SMALL, max_updates=20, run_dir=run)
    monkeypatch.setattr(importlib.metadata, "version", lambda _package: "99.1")
    for max_updates in (40, 60):
        assert spreeze.resume(run, max_updates=max_updates).updates == max_updates
    warnings = [event["reason"] for event in events_of(run) if event["kind"] == "warning"]
    told = f"Pendulum-v1: gymnasium was {installed} and is 99.1 now; it may behave differently"
    assert [warning for warning in warnings if "99.1" in warning] == [told]
    assert environment_of(run)["packages"] == {"gymnasium": "99.1"}


# --- by the command, with processes -------------------------------------------------------------------------------


def test_the_command_refuses_another_environment_in_one_line(spreeze: Spreeze) -> None:
    assert spreeze.train("Toy/Point-v0", serial=True, max_updates=20, quiet=True).returncode == 0
    change_config(spreeze.run_dir, serial=False)
    for fields, said in (
        ({"env_kwargs": '{"bonus": 2.0}'}, "argument bonus was not given and is 2.0 now"),
        (
            {"env_kwargs": "{}", "env": "Toy/AsymmetricActions-v0"},
            'id was "Toy/Point-v0" and is "Toy/AsymmetricActions',
        ),
    ):
        change_config(spreeze.run_dir, **fields)
        before = content_of(spreeze.run_dir)
        finished = spreeze("resume", "run", "--max-updates", 40)
        assert finished.returncode == 2, finished.stderr
        (line,) = finished.stderr.strip().splitlines()
        assert said in line
        assert "set env and env_kwargs in run/config.json back, or start a new run" in line
        assert content_of(spreeze.run_dir) == before


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("Toy/ConstructorRaises-v0", "could not be made: RuntimeError: the scene file is missing"),
        ("Toy/ConstructorExits-v0", "could not be made: SystemExit: no licence"),
        ("MountainCarContinuous-v0", "a transition has 8 numbers, and those of the checkpoint 10"),
    ],
)
def test_an_old_run_whose_environment_is_another_is_refused(env: str, said: str, spreeze: Spreeze) -> None:
    shutil.copytree(RUN, spreeze.run_dir)
    change_config(spreeze.run_dir, env=env, env_module=["toy_envs"])
    before = content_of(spreeze.run_dir)
    finished = spreeze("resume", "run", "--max-env-steps", 3000)
    assert finished.returncode == 2, finished.stderr
    (line,) = finished.stderr.strip().splitlines()
    assert said in line
    assert content_of(spreeze.run_dir) == before


EXITS = """
import os
import gymnasium
from gymnasium.envs.classic_control.pendulum import PendulumEnv
class Exits(PendulumEnv):
    def __init__(self):
        print("no licence\\nfor this robot", flush=True)
        os._exit(3)
gymnasium.register("Exits-v0", entry_point=Exits)
"""


def test_what_ends_the_process_that_examines_it_is_told_in_one_line(spreeze: Spreeze) -> None:
    shutil.copytree(RUN, spreeze.run_dir)
    (spreeze.folder / "exits.py").write_text(EXITS)
    change_config(spreeze.run_dir, env="Exits-v0", env_module=["exits"])
    before = content_of(spreeze.run_dir)
    finished = spreeze("resume", "run", "--max-env-steps", 3000)
    assert finished.returncode == 2, finished.stderr
    (line,) = finished.stderr.strip().splitlines()
    assert "it exited with code 3; its output ends with 'for this robot'" in line
    assert content_of(spreeze.run_dir) == before


def test_ctrl_c_while_the_environment_is_examined_leaves_the_run_as_it_was(spreeze: Spreeze) -> None:
    shutil.copytree(RUN, spreeze.run_dir)
    marker = spreeze.folder / "marker"
    change_config(
        spreeze.run_dir,
        env="Toy/ConstructorHangs-v0",
        env_module=["toy_envs"],
        env_kwargs=json.dumps({"marker": str(marker)}),
    )
    before = content_of(spreeze.run_dir)
    run = spreeze.start("resume", "run", "--max-env-steps", 3000)
    spreeze.wait_until(marker.exists, "an environment that hangs", run=run)
    run.process.send_signal(signal.SIGINT)
    assert run.finish().returncode == 130
    assert content_of(spreeze.run_dir) == before
