"""A robot that exists once is opened by one process at a time, and closed at the end, however the run ends."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Running, Spreeze

LONG_WARMUP = 100_000  # the learner has nothing to do, and the run does not depend on how soon it is there


class Stage:
    """A run on a robot, and the robot's journal."""

    def __init__(self, spreeze: Spreeze) -> None:
        self.spreeze, self.folder = spreeze, spreeze.folder / "robot"
        self.folder.mkdir()

    def start(self, misbehaviour: str = "", **fields: Any) -> Running:
        kwargs = {"folder": str(self.folder), "misbehaviour": misbehaviour}
        one = {"env_module": "robot_envs", "samplers": None, "envs_per_sampler": None, "env_threads": None}
        fields = {**one, "warmup_steps": LONG_WARMUP, "env_kwargs": kwargs, "realtime": 200, **fields}
        self.running = self.spreeze.start_training("Toy/Robot-v0", **fields)
        return self.running

    def journal(self) -> list[str]:
        """Return what was done with the robot, by whomever."""
        path: Path = self.folder / "journal"
        return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for(self, what: str, times: int = 1) -> None:
        self.spreeze.wait_until(
            lambda: self.journal().count(what) >= times, f"{times} times {what!r}", run=self.running
        )

    def check_closed(self) -> None:
        """Fail unless it was closed each time that it was opened, before the next one opened it."""
        uses = [line for line in self.journal() if line in ("open", "close")]
        assert uses == ["open", "close"] * (len(uses) // 2)
        assert len(uses) >= 4  # once to look at it, and once for a sampler
        assert not (self.folder / "open").exists()


@pytest.fixture
def stage(spreeze: Spreeze) -> Stage:
    return Stage(spreeze)


def interrupt(running: Running) -> None:
    running.process.send_signal(signal.SIGINT)


def interrupt_twice(running: Running) -> None:
    interrupt(running)
    interrupt(running)


def terminate(running: Running) -> None:
    running.process.send_signal(signal.SIGTERM)


def kill(running: Running) -> None:
    running.process.kill()


@pytest.mark.parametrize(
    ("misbehaviour", "after", "end", "code"),
    [
        ("", "reset", interrupt_twice, 130),
        ("", "reset", kill, -signal.SIGKILL),
        ("hangs", "hangs", terminate, 130),
        ("person", "waits", interrupt, 130),
        ("person", "waits", kill, -signal.SIGKILL),
    ],
)
def test_a_run_that_is_ended_closes_the_robot(
    stage: Stage, misbehaviour: str, after: str, end: Callable[[Running], None], code: int
) -> None:
    running = stage.start(misbehaviour)
    stage.wait_for(after)
    end(running)
    assert running.finish().returncode == code
    stage.spreeze.wait_until(lambda: not stage.spreeze.processes("sampler"), "no sampler")
    stage.check_closed()


def test_an_exception_in_a_step_closes_the_robot_before_the_next_sampler_opens_it(stage: Stage) -> None:
    finished = stage.start("raises").finish()
    assert finished.returncode == 1
    assert "a cable is loose" in finished.stderr
    stage.check_closed()


def test_the_robot_goes_on_while_another_learner_takes_the_place_of_one_that_was_killed(stage: Stage) -> None:
    running = stage.start()
    stage.wait_for("reset")
    stage.spreeze.wait_until(lambda: stage.spreeze.processes("learner"), "a learner", run=running)
    stage.spreeze.processes("learner")[0].kill()
    resets = len(stage.journal())
    stage.wait_for("reset", resets + 2)
    terminate(running)
    assert running.finish().returncode == 130
    stage.check_closed()
    assert stage.journal().count("open") == 2


def test_waiting_for_a_person_is_neither_a_hang_nor_a_stall(stage: Stage) -> None:
    limit_s = 3.0  # for the constructor too
    running = stage.start("person", hang_s=limit_s, stall_s=limit_s, max_env_steps=30)

    def has_waited_longer() -> bool:
        lines = [line for line in stage.spreeze.journal("metrics") if line["realtime"]["waits_for_person"]]
        return len(lines) > 1 and lines[-1]["wall_s"] - lines[0]["wall_s"] > limit_s + 1

    stage.spreeze.wait_until(has_waited_longer, "lines that say that it waits", run=running)
    (stage.folder / "ready").touch()
    finished = running.finish()
    assert finished.returncode == 0, finished.stderr
    assert "waits for a person" in finished.stdout
    said = [event["reason"] for event in stage.spreeze.journal("events") if event["kind"] == "warning"]
    assert all("the run made no update" in reason for reason in said), said  # its warm-up is long
    assert stage.journal().count("open") == 2
    assert stage.spreeze.read("summary.json")["realtime"]["steps"] >= 28
    stage.check_closed()
