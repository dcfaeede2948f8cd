"""Processes that environments start: none outlives the run, nor the process that had started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
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
    deadline = time.monotonic() + GUARD_S
    while not told.exists():
        assert time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.005)
    return leader, [psutil.Process(int(text)) for text in told.read_text().split()]


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
