"""Runs commands in forks of a process that has made their imports, which take as much time as a small run itself.

In: words, folder and variables. Out: a process of its own, in a session of its own, that ends as a program does.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from waiting_forks import ROOM_FOR_VARIABLES, ROOM_FOR_WORDS, become, run_to_its_end, wait_for_programs

from spreeze.host.threads import thread_variables

# What the process of a command imports before a run begins, and what the processes of that run import.
RUNS = (
    "cloudpickle",
    "gymnasium",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "numpy",
    "pynvml",
    "spreeze.algorithms.ddpg",
    "spreeze.algorithms.sac",
    "spreeze.algorithms.td3",
    "spreeze.commands.cli",
    "spreeze.commands.examination",
    "spreeze.commands.start_run",
    "spreeze.commands.train",
    "spreeze.environments.process",
    "spreeze.evaluation.process",
    "spreeze.learning.process",
    "spreeze.learning.serial",
    "spreeze.learning.split_process",
    "spreeze.sampling.process",
    "spreeze.supervision.supervisor",
    "spreeze.supervision.resume",
    "spreeze.supervision.worker_main",
    "spreeze.views.terminal",
    "typeguard",
    "tyro",
)

# What `spreeze dashboard` imports until it serves.
PAGES = ("numpy", "spreeze.commands.cli", "spreeze.views.dashboard.application", "tyro", "uvicorn")


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str


class ForkedProcess:
    """A command in a fork, as far as tests use what `subprocess.Popen` has."""

    def __init__(self, forks: ForkedCommands, pid: int) -> None:
        self.pid, self.args = pid, ["spreeze"]
        self.returncode: int | None = None
        self._forks = forks

    def poll(self) -> int | None:
        """Return its exit code, None as long as it runs."""
        self._forks.receive(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self._forks.receive(left)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send it SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ForkedCommands:
    """The process that forks, and how to ask it."""

    def __init__(self, modules: Sequence[str] = RUNS, are_programs: bool = False) -> None:
        """are_programs: whether the processes that a command starts are, instead of forks that wait for that."""
        # As `views/dashboard/server.py` sets it before this import.
        nicegui = {"NICEGUI_STORAGE_PATH": str(Path(os.devnull, "nicegui"))}
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(int(are_programs)), " ".join(modules), ROOM_FOR_WORDS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **thread_variables(1), **nicegui, **ROOM_FOR_VARIABLES},
            start_new_session=True,
        )
        self._running: dict[int, ForkedProcess] = {}
        self._started: list[ForkedProcess] = []
        self._received = b""

    def start(
        self,
        words: Sequence[str],
        folder: Path,
        variables: Mapping[str, str],
        stdout: IO[bytes],
        stderr: IO[bytes],
        is_script: bool = False,
    ) -> ForkedProcess:
        """Start `spreeze WORDS`, or `python WORDS`. variables: all that it has. stdout, stderr: files."""
        assert self._process.stdin is not None
        files = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in (stdout, stderr)]
        where = {"folder": str(folder), "variables": dict(variables), "files": files}
        order = {"words": list(words), "is_script": is_script, **where}
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        while not self._started:
            self.receive(None)
        process = self._started.pop()
        process.args += words
        return process

    def receive(self, timeout_s: float | None) -> None:
        """Take in what the process has to say, waiting for some of it as long as this, None for ever."""
        stdout = self._process.stdout
        assert stdout is not None
        waiting = select.poll()  # `select.select` takes no descriptor above 1023
        waiting.register(stdout, select.POLLIN)
        if not waiting.poll(None if timeout_s is None else 1000 * timeout_s):
            return
        received = os.read(stdout.fileno(), 1 << 16)
        assert received, "the process that forks has ended"
        *lines, self._received = (self._received + received).split(b"\n")
        for line in lines:
            pid, code = json.loads(line)
            if code is None:
                self._running[pid] = ForkedProcess(self, pid)
                self._started.append(self._running[pid])
            else:
                self._running.pop(pid).returncode = code

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def _serve() -> dict[str, Any] | None:
    """Fork for every line, and tell the number of each fork and its exit code. Returns what a fork is to do."""
    lines = sys.stdin.buffer.raw  # type: ignore[attr-defined]  # nothing may wait in a buffer
    running: dict[int, int] = {}  # by the descriptor that tells its end
    waiting = select.poll()
    waiting.register(lines, select.POLLIN)
    received = b""
    while True:
        for fd, _ in waiting.poll():
            if fd in running:
                waiting.unregister(fd)
                os.close(fd)
                pid, status = os.waitpid(running.pop(fd), 0)
                _tell(pid, os.waitstatus_to_exitcode(status))
                continue
            more = lines.read(1 << 16)
            if not more:
                return None
            *orders, received = (received + more).split(b"\n")
            for order in orders:
                pid = os.fork()
                if not pid:
                    return dict(json.loads(order))
                fd = os.pidfd_open(pid)
                running[fd] = pid
                waiting.register(fd, select.POLLIN)
                _tell(pid, None)


def _tell(pid: int, code: int | None) -> None:
    os.write(1, json.dumps([pid, code]).encode() + b"\n")


def _become_command(
    words: list[str], is_script: bool, folder: str, variables: dict[str, str], files: list[str], are_programs: bool
) -> None:
    """Be what `python -m spreeze WORDS`, or a script, is once it has made its imports."""
    from spreeze.commands.cli import main

    for fd, path in enumerate((os.devnull, *files)):
        os.dup2(os.open(path, os.O_RDWR), fd)
    os.closerange(3, 1 << 16)
    os.setsid()  # a signal to its group reaches nobody else
    os.chdir(folder)
    become([sys.executable, *([] if is_script else ["-m", "spreeze"]), *words], variables)
    if not are_programs:
        wait_for_programs(["script"] if is_script else words)
    if is_script:
        sys.argv = words
        sys.path.insert(0, str(Path(words[0]).resolve().parent))
        run_to_its_end(lambda: runpy.run_path(words[0], run_name="__main__"))
    sys.argv = [str(Path(sys.modules["spreeze"].__file__ or "").with_name("__main__.py")), *words]
    run_to_its_end(main)


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file
    are_programs = bool(int(sys.argv[1]))
    for module in sys.argv[2].split():
        importlib.import_module(module)
    if "spreeze.commands.train" in sys.modules:
        sys.modules["spreeze.commands.train"].training_config(["Pendulum-v1"])  # whose first call imports more
    gc.freeze()  # pages that no fork writes to are shared
    told = _serve()
    if told is not None:
        _become_command(**told, are_programs=are_programs)
