"""What the evaluator says about the environment before its first evaluation."""

from __future__ import annotations

import bdb
from typing import Any

import gymnasium
import numpy as np
import pytest

from spreeze.channels.control import MessageList
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.examine import MAX_S
from spreeze.evaluation.process import MAX_WARNINGS, warn_about_environment, warn_in_serial_run


class Sloppy(gymnasium.Env[Any, Any]):
    """Gets six things wrong, none of which keeps anybody from training on it."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    generator = np.random.default_rng()
    steps = 0

    def reset(self, *, seed: int | None = None) -> Any:  # type: ignore[override]
        super().reset(seed=seed)
        return self.generator.normal(size=1), None

    def step(self, _action: Any) -> Any:
        self.steps += 1
        observation = np.array([np.nan if self.steps == 5 else 0], np.float32)
        return observation, True, 0, 0, {}


class Raising(Sloppy):
    def step(self, _action: Any) -> Any:
        raise SystemExit("no licence")


def reasons(messages: MessageList) -> list[str]:
    sent = messages.take()
    assert all((message["kind"], message["event"]) == ("event", "warning") for message in sent)
    return [message["reason"] for message in sent]


def test_warnings_are_few_and_of_one_line() -> None:
    messages = MessageList()
    warn_about_environment(EnvSpec("sloppy", factory=Sloppy), messages, lambda: False)
    said = reasons(messages)
    assert len(said) == MAX_WARNINGS
    assert all(reason.startswith("sloppy: ") and "\n" not in reason for reason in said)


def test_notes_are_no_warnings() -> None:
    messages = MessageList()
    # It has no time limit, of which the doctor has a note.
    warn_about_environment(
        EnvSpec("Endless", factory=lambda: gymnasium.make("Pendulum-v1").unwrapped), messages, bool
    )
    assert reasons(messages) == []


def test_what_the_environment_raises_ends_the_evaluator() -> None:
    with pytest.raises(SystemExit, match="no licence"):
        warn_about_environment(EnvSpec("raising", factory=Raising), MessageList(), lambda: False)


def test_nothing_is_said_once_the_run_ends() -> None:
    messages, turns = MessageList(), iter(range(1000))
    warn_about_environment(EnvSpec("sloppy", factory=Sloppy), messages, lambda: next(turns) > 3)
    assert reasons(messages) == []
    assert next(turns) < 10


def test_a_serial_run_is_told_the_same_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is raised is told, and raised again by the environments of the training."""
    monkeypatch.setattr("spreeze.evaluation.process.SERIAL_S", MAX_S)
    in_evaluator, in_serial, beats = MessageList(), MessageList(), list[None]()
    spec = EnvSpec("sloppy", factory=Sloppy)
    warn_about_environment(spec, in_evaluator, lambda: False)
    warn_in_serial_run(spec, in_serial, lambda: beats.append(None))
    assert reasons(in_serial) == reasons(in_evaluator)
    assert beats
    warn_in_serial_run(EnvSpec("raising", factory=Raising), in_serial, lambda: None)
    assert any(
        "raising, when it was checked: step raised SystemExit: no licence" in each for each in reasons(in_serial)
    )


@pytest.mark.parametrize("error", [KeyboardInterrupt, bdb.BdbQuit])
def test_somebody_can_end_a_serial_run_that_examines_its_environment(error: type[BaseException]) -> None:
    """By Ctrl-C, and in a debugger that stopped at a breakpoint in the environment."""

    class Stopped(Sloppy):
        def step(self, _action: Any) -> Any:
            raise error

    with pytest.raises(error):
        warn_in_serial_run(EnvSpec("stopped", factory=Stopped), MessageList(), lambda: None)


@pytest.mark.parametrize("spec", [EnvSpec("sloppy", backend="envpool"), EnvSpec("HopperBulletEnv-v0")])
def test_environments_that_are_not_examined(spec: EnvSpec) -> None:
    def never() -> Any:
        raise AssertionError("it was examined")

    warn_about_environment(spec, MessageList(), never)
    warn_in_serial_run(spec, MessageList(), never)
