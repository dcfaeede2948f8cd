"""Processes that environments start: none outlives the run, nor the process that had started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from spreeze.host.process_group import GroupLeader, as_subreaper

if TYPE_CHECKING:
    from conftest import Spreeze

# Starts a process in its own group, one in another session, and an orphan; says their numbers; then ends or waits.
PROGRAM = """
import os, signal, sys, time
numbers = []
for kind in ("group", "session", "orphan"):
    read, write = os.pipe()
    if os.fork() == 0:
        if kind != "group":
            os.setsid()
        if kind == "orphan" and os.fork():
            os._exit(0)
        os.write(write, str(os.getpid()).encode())
        time.sleep(600)
    numbers.append(os.read(read, 20).decode())
open(sys.argv[1] + ".part", "w").write(" ".join(numbers))
os.rename(sys.argv[1] + ".part", sys.argv[1])
how = sys.argv[2]
if how == "ends":
    os._exit(0)
if how == "crashes":
    os.kill(os.getpid(), signal.SIGSEGV)
time.sleep(600)
"""
GUARD_S = 60.0


def started(folder: Path, how: str) -> tuple[GroupLeader, list[psutil.Process]]:
    told = folder / "numbers"
    command = [sys.executable, "-c", PROGRAM, str(told), how]
    with (folder / "log").open("ab") as log:
        leader = GroupLeader(command, os.environ, (), log.fileno())
    wait_until_there(told)
    return leader, [psutil.Process(int(text)) for text in told.read_text().split()]


def wait_until_there(path: Path) -> None:
    deadline = time.monotonic() + GUARD_S
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.005)


def is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until_gone(processes: list[psutil.Process]) -> None:
    deadline = time.monotonic() + GUARD_S
    while not all(map(is_gone, processes)):
        assert time.monotonic() < deadline, processes
        time.sleep(0.005)


@pytest.mark.parametrize("how", ["ends", "crashes", "is killed"])
@pytest.mark.parametrize("adopts", [True, False])
def test_what_a_program_has_started_ends_with_it(how: str, adopts: bool, tmp_path: Path) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        if adopts:
            with as_subreaper():
                leader, others = started(tmp_path, how)
                _end(leader, how)
        else:
            leader, others = started(tmp_path, how)
            _end(leader, how)
        wait_until_gone(others)
        if adopts:  # nothing of it is left to reap
            assert {child.pid for child in psutil.Process().children()} & {each.pid for each in others} == set()
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def _end(leader: GroupLeader, how: str) -> None:
    if how == "is killed":
        leader.kill()
    deadline = time.monotonic() + GUARD_S
    while leader.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert leader.returncode == {"ends": 0, "crashes": -signal.SIGSEGV, "is killed": -signal.SIGKILL}[how]


# Leaves its parent's group, and starts another process of that kind when it is told to.
RESTLESS = """
import os, signal, sys, time
def start_another(*_):
    if os.fork() == 0:
        open(sys.argv[1] + ".part", "w").write(str(os.getpid()))
        os.rename(sys.argv[1] + ".part", sys.argv[1])
    time.sleep(600)
signal.signal(signal.SIGUSR1, start_another)
if os.fork() == 0:
    os.setsid()
    open(sys.argv[2] + ".part", "w").write(str(os.getpid()))
    os.rename(sys.argv[2] + ".part", sys.argv[2])
time.sleep(600)
"""


def test_what_is_started_while_the_others_are_being_killed_ends_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, early = tmp_path / "late", tmp_path / "early"
    with as_subreaper(), (tmp_path / "log").open("ab") as log:
        leader = GroupLeader([sys.executable, "-c", RESTLESS, str(late), str(early)], os.environ, (), log.fileno())
        wait_until_there(early)
        look = GroupLeader._others

        def look_too_early(self: GroupLeader) -> Iterator[psutil.Process]:
            found = list(look(self))
            if not late.exists():
                os.kill(int(early.read_text()), signal.SIGUSR1)
                wait_until_there(late)
            yield from found

        monkeypatch.setattr(GroupLeader, "_others", look_too_early)
        leader.kill()
        wait_until_gone([psutil.Process(int(late.read_text()))] if psutil.pid_exists(int(late.read_text())) else [])


def test_a_session_with_variables_of_its_own_ends_with_a_program_that_is_killed(tmp_path: Path) -> None:
    """Nothing says whose it is but that it descends from the program."""
    told = tmp_path / "number"
    program = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={{}}, start_new_session=True)
open({str(told)!r} + ".part", "w").write(str(child.pid))
import os; os.rename({str(told)!r} + ".part", {str(told)!r})
time.sleep(600)
"""
    with as_subreaper(), (tmp_path / "log").open("ab") as log:
        leader = GroupLeader([sys.executable, "-c", program], os.environ, (), log.fileno())
        wait_until_there(told)
        child = psutil.Process(int(told.read_text()))
        leader.kill()
        wait_until_gone([child])


def test_processes_of_an_environment_end_with_a_supervisor_that_is_killed(spreeze: Spreeze) -> None:
    markers = spreeze.folder / "markers"
    markers.mkdir()
    run = spreeze.start_training("Toy/Forks-v0", env_kwargs={"marker_dir": str(markers)}, max_seconds=90)
    for role in ("sampler", "evaluator"):
        spreeze.wait_until(lambda role=role: len(list(markers.glob(f"{role}-*"))) >= 4, f"a {role}'s", run=run)

    run.process.kill()

    run.finish()
    spreeze.wait_until(lambda: not spreeze.processes(), "the end of all processes", GUARD_S)


def test_processes_of_an_environment_end_with_a_command_that_steps_it_itself(spreeze: Spreeze) -> None:
    (spreeze.folder / "forks.py").write_text(
        "import os, time\n"
        "import gymnasium, toy_envs\n"
        "class Forks(toy_envs.Point):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        if os.fork() == 0:\n"
        "            os.setsid()\n"
        "            time.sleep(600)\n"
        "gymnasium.register('Forks-v0', Forks, max_episode_steps=20)\n"
    )
    path = os.pathsep.join((str(spreeze.folder), spreeze.variables()["PYTHONPATH"]))
    words = ("doctor", "Forks-v0", "--env-module", "forks")
    finished = spreeze.start(*words, environment={"PYTHONPATH": path}).finish()
    assert finished.returncode == 0, finished.stderr
    assert spreeze.processes() == []


def test_an_environment_that_is_examined_ends_with_a_command_that_is_killed(spreeze: Spreeze) -> None:
    (spreeze.folder / "waits.py").write_text(
        "import os, time\n"
        "import gymnasium, toy_envs\n"
        "class Waits(toy_envs.Point):\n"
        "    def __init__(self):\n"
        "        if os.fork() == 0:\n"
        "            os.setsid()\n"
        "            open('forked', 'w').close()\n"
        "        time.sleep(600)\n"
        "gymnasium.register('Waits-v0', Waits, max_episode_steps=20)\n"
    )
    run = spreeze.start("doctor", "Waits-v0", "--env-module", "waits", "--hang-s", 500)
    spreeze.wait_until((spreeze.folder / "forked").exists, "a process of its environment", run=run)

    run.process.kill()

    run.finish()
    spreeze.wait_until(lambda: not spreeze.processes(), "the end of all processes", GUARD_S)


@pytest.mark.parametrize("dies", [False, True])
def test_processes_of_an_environment_end_with_the_run(dies: bool, spreeze: Spreeze) -> None:
    markers = spreeze.folder / "markers"
    markers.mkdir()
    kwargs = {"marker_dir": str(markers), "dies": dies}
    finished = spreeze.train("Toy/Forks-v0", env_kwargs=kwargs, max_updates=300, envs_per_sampler=2)
    assert finished.returncode == 0, finished.stderr
    assert {path.name.partition("-")[0] for path in markers.iterdir()} >= {"sampler", "evaluator"}
    # Not even for a moment: the run has waited for them. The fixture looks too, at the end of the test.
    assert spreeze.processes() == []
    if dies:
        reasons = [event["reason"] for event in spreeze.journal("events") if event["kind"] == "warning"]
        assert any("exited with code 3" in reason for reason in reasons)
