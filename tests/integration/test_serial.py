"""Runs in one process: they repeat themselves, also when interrupted, and a debugger stops in them."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
import numpy as np
import psutil
import pytest
import torch
from gymnasium import spaces
from gymnasium.envs.classic_control.pendulum import PendulumEnv

import spreeze
from spreeze.algorithms.sac import Sac
from spreeze.channels.control import MessageList
from spreeze.channels.weights import read_weights
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.examine import STEPS
from spreeze.errors import ConfigError, EnvironmentSetupError, RunFailed
from spreeze.evaluation import process

if TYPE_CHECKING:
    from conftest import Spreeze

SMALL: dict[str, Any] = {
    "serial": True,
    "quiet": True,
    "device": "cpu",
    "tensorboard": False,
    "envs_per_sampler": 4,
    "hidden": (16, 16),
    "batch_size": 16,
    "warmup_steps": 100,
    "eval_episodes": 2,
}


def parameters_of(run: Path) -> dict[str, bytes]:
    """The newest version of the policy, byte by byte."""
    newest = max((run / "weights").glob("policy-*.safetensors"))
    tensors, about = read_weights(newest)
    return {name: tensor.tobytes() for name, tensor in tensors.items()} | {
        "version": about["version"].encode(),
        "updates": about["updates"].encode(),
    }


def rows_of(run: Path) -> bytes:
    """All transitions that were ever stored."""
    return b"".join(path.read_bytes() for path in sorted((run / "checkpoint" / "replay").glob("rows-*")))


def evaluations_of(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "wall_s"} for line in lines]


def everything_of(run: Path) -> tuple[Any, ...]:
    evaluations = evaluations_of(run)
    assert evaluations
    return parameters_of(run), rows_of(run), evaluations


def train(env: Any, run: Path, **fields: Any) -> tuple[Any, ...]:
    spreeze.train(env, **{**SMALL, "run_dir": run, **fields})
    return everything_of(run)


# --- the same bytes -----------------------------------------------------------------------------------------------

OPTIONS: dict[str, dict[str, Any]] = {
    "sac": {},
    "td3-multi-step": {"algo": "td3", "n_step": 3, "envs_per_sampler": 3},
    "ddpg-two-samplers": {"algo": "ddpg", "samplers": 2, "normalise_observations": True},
    "two-devices": {"actor_device": "cpu", "critic_device": "cpu"},
    "bfloat16-atoms": {"update_engine": "bfloat16", "atoms": 11, "value_range": (-2000.0, 0.0)},
}


@pytest.mark.parametrize("fields", OPTIONS.values(), ids=OPTIONS)
def test_the_same_seed_gives_the_same_bytes_also_when_interrupted(fields: dict[str, Any], tmp_path: Path) -> None:
    fields = {**fields, "max_episode_steps": 50}  # several episodes and evaluations in few updates
    whole = train("Pendulum-v1", tmp_path / "whole", max_updates=150, **fields)
    assert train("Pendulum-v1", tmp_path / "again", max_updates=150, **fields) == whole
    for limit in (35, 94):  # in the middle of the updates after a step; then from a run that was resumed itself
        if limit == 35:
            train("Pendulum-v1", tmp_path / "parts", max_updates=limit, **fields)
        else:
            spreeze.resume(tmp_path / "parts", max_updates=limit)
    spreeze.resume(tmp_path / "parts", max_updates=150)
    assert everything_of(tmp_path / "parts") == whole
    other = train("Pendulum-v1", tmp_path / "other", max_updates=150, seed=1, **fields)
    assert all(mine != theirs for mine, theirs in zip(other, whole, strict=True))


CHOICES: dict[str, dict[str, Any]] = {
    "dqn": {"env": "CartPole-v1"},
    "sac": {"env": "CartPole-v1", "algo": "sac"},
    "dqn-atoms": {"env": "CartPole-v1", "atoms": 11, "value_range": (0.0, 50.0), "dueling": False},
}


@pytest.mark.parametrize("fields", CHOICES.values(), ids=CHOICES)
def test_choices_repeat_themselves_and_continue_where_they_were(fields: dict[str, Any], tmp_path: Path) -> None:
    env, fields = fields["env"], {"algo": "dqn", "n_step": 3} | {**fields, "max_episode_steps": 50}
    del fields["env"]
    whole = train(env, tmp_path / "whole", max_updates=150, **fields)
    train(env, tmp_path / "parts", max_updates=70, **fields)
    spreeze.resume(tmp_path / "parts", max_updates=150)
    assert everything_of(tmp_path / "parts") == whole


def test_robots_continue_where_they_were(tmp_path: Path) -> None:
    fields = {"n_step": 5, "max_env_steps": 600}
    whole = train("Hopper-v5", tmp_path / "whole", **fields)
    train("Hopper-v5", tmp_path / "parts", **{**fields, "max_env_steps": 333})
    spreeze.resume(tmp_path / "parts", max_env_steps=600)
    assert everything_of(tmp_path / "parts") == whole


def test_figures_of_the_end_are_recorded_also_where_a_run_takes_less_than_a_second(tmp_path: Path) -> None:
    result = spreeze.train("Pendulum-v1", **SMALL, run_dir=tmp_path / "run", max_updates=20)
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["updates"], last["env_steps"]) == (20, result.env_steps)


LONG: dict[str, Any] = {**SMALL, "max_updates": 1500, "checkpoint_interval_s": 0.2, "seed": 2}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    """A run that nobody ended."""
    return train("Pendulum-v1", tmp_path_factory.mktemp("reference") / "run", **LONG)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_a_run_that_was_ended_at_any_moment_continues_as_if_it_had_not_been(
    number: signal.Signals, spreeze: Spreeze, reference: tuple[Any, ...]
) -> None:
    running = spreeze.start_training("Pendulum-v1", **{**LONG, "tensorboard": None, "no_tensorboard": True})
    checkpoints = spreeze.run_dir / "checkpoint"
    spreeze.wait_until(lambda: any(checkpoints.glob("manifest-*.json")), "a checkpoint", run=running)
    running.process.send_signal(number)
    assert running.finish().returncode == (130 if number == signal.SIGINT else -number)
    resumed = spreeze("resume", spreeze.run_dir, "--quiet")
    assert resumed.returncode == 0, resumed.stderr
    parameters, rows, evaluations = everything_of(spreeze.run_dir)
    assert (parameters, rows) == reference[:2]
    # What was evaluated between the last checkpoint and the kill was evaluated again.
    once = {evaluation["version"]: evaluation for evaluation in evaluations}
    assert list(once.values()) == reference[2]
    assert sorted(evaluations, key=lambda line: line["version"])[-1] == reference[2][-1]


class InterruptsAt(Sac):
    """Presses Ctrl-C at an update."""

    update_number: ClassVar[int] = 0
    interrupted_at: ClassVar[int] = 0

    def update_actor(self, batch: Any, noise: Any) -> Any:
        InterruptsAt.update_number += 1
        if InterruptsAt.update_number == InterruptsAt.interrupted_at:
            os.kill(os.getpid(), signal.SIGINT)
        return super().update_actor(batch, noise)


def test_a_run_ends_between_two_updates_and_continues_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only after all those that follow a step: they may be many, and each may take seconds."""
    fields = {"envs_per_sampler": 30, "max_updates": 250, "algo": InterruptsAt}
    whole = train("Pendulum-v1", tmp_path / "whole", **fields)
    monkeypatch.setattr(InterruptsAt, "interrupted_at", 250 + 71)
    with pytest.raises(KeyboardInterrupt):
        train("Pendulum-v1", tmp_path / "parts", **fields)
    summary = json.loads((tmp_path / "parts" / "summary.json").read_text())
    assert (summary["stop_reason"], summary["updates"]) == ("interrupted", 71)
    spreeze.resume(tmp_path / "parts", algo=InterruptsAt)
    assert everything_of(tmp_path / "parts") == whole


class InterruptsAtStep(PendulumEnv):
    """Presses Ctrl-C at a step."""

    step_number: ClassVar[int] = 0
    interrupted_at: ClassVar[int] = 0

    def step(self, action: Any) -> Any:
        InterruptsAtStep.step_number += 1
        if InterruptsAtStep.step_number == InterruptsAtStep.interrupted_at:
            os.kill(os.getpid(), signal.SIGINT)
        return super().step(action)


@pytest.mark.parametrize("devices", [{}, {"actor_device": "cpu", "critic_device": "cpu"}], ids=["one", "two"])
def test_a_run_that_is_ended_between_steps_and_updates_continues_there(
    devices: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The updates that follow belong to a version of their own, and not to the one before."""
    monkeypatch.setattr(process, "warn_in_serial_run", lambda *_: None)  # how many steps it takes, time decides
    fields = {"max_updates": 60, "max_episode_steps": 50, **devices}
    whole = train(InterruptsAtStep, tmp_path / "whole", **fields)
    monkeypatch.setattr(InterruptsAtStep, "step_number", 0)
    monkeypatch.setattr(InterruptsAtStep, "interrupted_at", 240)  # a step of a sampler
    with pytest.raises(KeyboardInterrupt):
        train(InterruptsAtStep, tmp_path / "parts", **fields)
    summary = json.loads((tmp_path / "parts" / "summary.json").read_text())
    assert summary["stop_reason"] == "interrupted"
    assert summary["updates"] % 4 == 2  # one update, and four for each round until then: this one has more to make
    spreeze.resume(tmp_path / "parts", env=InterruptsAtStep)
    assert everything_of(tmp_path / "parts") == whole


class Counted(gymnasium.Env[Any, Any]):
    """Counts how many there are; the time is up when there are some."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)
    made = 0

    def __init__(self) -> None:
        Counted.made += 1
        if Counted.made == 2:
            time.sleep(LIMIT_S)  # not to wait for something: time is what is to pass

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        return np.zeros(1, np.float32), {}


LIMIT_S = 0.5


def test_a_limit_ends_a_run_that_is_still_making_environments(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="no environment step was made: the first constructors, resets and steps"):
        spreeze.train(Counted, **SMALL, max_seconds=LIMIT_S, run_dir=tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["stop_reason"], summary["env_steps"], summary["checkpoint_s"]) == ("max_seconds", 0, 0.0)
    assert Counted.made < 1 + SMALL["envs_per_sampler"] + SMALL["eval_episodes"]


def test_a_run_without_an_update_says_why(tmp_path: Path) -> None:
    spreeze.train("Pendulum-v1", **SMALL, max_env_steps=40, run_dir=tmp_path / "run")
    (warning,) = warnings_of(tmp_path / "run")
    assert "made no update" in warning
    assert f"after 40 of the {SMALL['warmup_steps']} environment steps of its warm-up" in warning


def test_two_devices_make_the_updates_of_one(tmp_path: Path) -> None:
    one = train("Pendulum-v1", tmp_path / "one", max_updates=200)
    two = train("Pendulum-v1", tmp_path / "two", max_updates=200, actor_device="cpu", critic_device="cpu")
    assert one == two


class Moody(gymnasium.Env[Any, Any]):
    """Depends on how often it was reset, which no seed brings back."""

    observation_space = spaces.Box(-10, 10, (1,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)
    resets = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        Moody.resets += 1
        return np.array([Moody.resets % 7], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.array([Moody.resets % 7], np.float32), float(action[0]), False, False, {}


def test_an_environment_that_does_not_repeat_itself_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start, by the check of every environment, and when it is too late."""
    monkeypatch.setattr(process, "SERIAL_S", 60.0)  # however busy this machine is
    fields = {"max_episode_steps": 20, "run_dir": tmp_path / "run"}
    spreeze.train(Moody, **{**SMALL, **fields}, max_updates=50)
    (at_start,) = warnings_of(tmp_path / "run")
    assert at_start.startswith("Moody(): the same seed and the same actions do not give the same episode")
    Moody.resets += 1
    spreeze.resume(tmp_path / "run", env=Moody, max_updates=100)
    told_before, at_resume = warnings_of(tmp_path / "run")  # what is checked once is not checked again
    assert told_before == at_start
    assert "does not repeat its steps" in at_resume


def warnings_of(run: Path) -> list[str]:
    events = map(json.loads, (run / "events.jsonl").read_text().splitlines())
    return [event["reason"] for event in events if event["kind"] == "warning"]


def test_the_check_of_an_environment_draws_no_random_numbers_of_the_training() -> None:
    drawn = list[float]()

    class Drawing(Here):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            drawn.extend((random.random(), np.random.rand(), float(torch.rand(()))))
            return super().step(action)

    process.warn_in_serial_run(EnvSpec("Drawing", factory=Drawing), MessageList(), lambda: None)
    assert drawn[:3] == [random.random(), np.random.rand(), float(torch.rand(()))]


# --- one process --------------------------------------------------------------------------------------------------


class Here(gymnasium.Env[Any, Any]):
    """Notes where it runs, and uses random numbers of everybody."""

    observation_space = spaces.Box(-10, 10, (1,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)
    processes: ClassVar[set[int]] = set()
    children: ClassVar[list[int]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        Here.processes.add(os.getpid())
        Here.children.append(len(psutil.Process().children()))
        return np.zeros(1, np.float32), {}

    def step(self, _action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.array([float(torch.rand(())) + np.random.rand()], np.float32), 1.0, False, False, {}


def test_everything_runs_in_this_process_and_leaves_its_settings_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    threads, before = torch.get_num_threads(), len(psutil.Process().children())
    shown = {**SMALL, "quiet": False, "dashboard": True}
    result = spreeze.train(Here, **shown, max_episode_steps=10, max_updates=50, run_dir=tmp_path)
    assert "no dashboard: a serial run starts no other process" in capsys.readouterr().out
    assert Here.processes == {os.getpid()}
    assert set(Here.children) == {before}
    assert torch.get_num_threads() == threads
    assert result.updates == 50
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert any("spreeze dashboard" in event["reason"] for event in events)


def test_an_environment_that_draws_random_numbers_does_not_change_the_updates(tmp_path: Path) -> None:
    class Quiet(Here):
        def step(self, _action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return np.ones(1, np.float32), 1.0, False, False, {}

    class Loud(Quiet):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            torch.rand(7)
            return super().step(action)

    fields = {**SMALL, "max_episode_steps": 10, "max_updates": 50}
    quiet, loud = (train(env, tmp_path / env.__name__, **fields) for env in (Quiet, Loud))
    assert quiet == loud


SCRIPT = """
import gymnasium, numpy as np, spreeze
from gymnasium import spaces
from spreeze.algorithms.sac import Sac

class Stops(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)
    steps = 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        Stops.steps += 1
        if Stops.steps == 5:
            breakpoint()
        return np.zeros(1, np.float32), 0.0, False, False, {}

class StopsInALoss(Sac):
    updates = 0

    def update_actor(self, batch, noise):
        StopsInALoss.updates += 1
        if StopsInALoss.updates == 3:
            breakpoint()
        return super().update_actor(batch, noise)

spreeze.train(Stops, algo=StopsInALoss, serial=True, quiet=True, max_episode_steps=9, max_updates=9, warmup_steps=10,
              envs_per_sampler=2, batch_size=4, hidden=(8,), eval_episodes=1, run_dir="run", device="cpu")
print("ended with", Stops.steps > 5, StopsInALoss.updates)
"""


def test_a_debugger_stops_in_an_environment_and_in_a_loss(spreeze: Spreeze) -> None:
    (spreeze.folder / "script.py").write_text(SCRIPT)
    (spreeze.folder / "words").write_text("p 'in step', Stops.steps\nc\np 'in update', len(batch.reward)\nc\n")
    with (spreeze.folder / "words").open() as words:
        running = spreeze.start_python("script.py", terminal=None, stdin=words.fileno())
        finished = running.finish()
    assert finished.returncode == 0, finished.stderr
    assert "('in step', 5)" in finished.stdout
    assert "('in update', 4)" in finished.stdout
    assert "ended with True 9" in finished.stdout


class Mine(Exception):
    """Of the environment's own."""


class Raises(Here):
    """Raises what systems raise too."""

    kind: type[Exception] = Mine

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps = getattr(self, "steps", 0) + 1
        if self.steps == 60:
            raise self.kind("the robot fell off the table")
        return super().step(action)


@pytest.mark.parametrize("kind", [Mine, OSError, KeyError])
def test_an_exception_of_the_environment_arrives_as_itself(
    kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Raises, "kind", kind)
    run = tmp_path / "run"
    with pytest.raises(kind, match="fell off the table") as raised:
        spreeze.train(Raises, **{**SMALL, "warmup_steps": 200}, max_episode_steps=10, run_dir=run)
    assert type(raised.value) is kind
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None  # nothing of ours stands before its traceback
    last = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert (Path(last.filename).name, last.name) == (Path(__file__).name, "step")
    assert json.loads((run / "summary.json").read_text())["stop_reason"] == "failed"
    (error,) = (json.loads(line) for line in (run / "events.jsonl").read_text().splitlines() if '"error"' in line)
    assert (error["role"], error["kind"]) == ("sampler 0", "error")
    assert "fell off the table" in error["traceback"]
    # What was learnt until then is kept: with a better environment the run goes on.
    result = spreeze.resume(run, env=Here, max_updates=200)
    assert result.stop_reason == "max_updates"


def test_the_command_shows_the_traceback(spreeze: Spreeze) -> None:
    # After more steps than the check of an environment takes in one instance.
    faults = {"folder": str(spreeze.folder), "faults": ["raise"], "after": 2 * STEPS, "role": "supervise"}
    finished = spreeze.train("Toy/Faulty-v0", serial=True, env_kwargs=faults)
    assert finished.returncode == 1
    assert re.search(r'toy_envs.py", line \d+, in _fail_at\n', finished.stderr)


def test_limits_are_exact_and_evaluations_can_end_a_run(tmp_path: Path) -> None:
    result = spreeze.train("Pendulum-v1", **SMALL, max_env_steps=300, run_dir=tmp_path / "a")
    assert (result.env_steps, result.updates) == (300, 201)  # one for each step after the warm-up, and the first
    result = spreeze.train("Pendulum-v1", **SMALL, target_return=-5000, max_seconds=60, run_dir=tmp_path / "b")
    assert result.stop_reason == "target_return"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"backend": "mujoco"}, "--backend mujoco steps environments in batches, --serial one at a time"),
        ({"backend": "envpool"}, "--backend envpool steps environments in batches"),
        ({"update_engine": "graph"}, "--update-engine graph needs a GPU"),
    ],
)
def test_what_serial_cannot_do_is_refused(fields: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, EnvironmentSetupError), match=says):
        spreeze.train("HalfCheetah-v5", **{**SMALL, **fields}, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_where_processes_are_not_allowed_the_error_says_what_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", os.devnull)  # the system refuses to run it
    with pytest.raises(RunFailed, match=r"Permission denied.*--serial needs neither"):
        spreeze.train("Pendulum-v1", max_updates=1, quiet=True, tensorboard=False, run_dir=tmp_path / "run")
    train("Pendulum-v1", tmp_path / "serial", max_updates=100)


def test_the_algorithm_is_chosen_by_the_actions_and_the_run_says_why(tmp_path: Path) -> None:
    for env, algo, kind in (("Pendulum-v1", "sac", "continuous"), ("CartPole-v1", "dqn", "discrete")):
        run = tmp_path / env
        spreeze.train(env, **SMALL, max_updates=5, run_dir=run)
        assert json.loads((run / "config.json").read_text())["algo"] == algo
        events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
        (choice,) = [event for event in events if event.get("setting") == "algo"]
        assert (choice["value"], choice["reason"]) == (algo, f"the actions of {env} are {kind}")
