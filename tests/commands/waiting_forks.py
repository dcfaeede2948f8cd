"""Forks that wait to become the programs that a command starts, past the imports that take most of their time.

A training starts four programs; the learner's import of torch alone takes 1.2 s of CPU time. What waits is a child of
the command, as a program is, and gets what a program gets: words, variables, descriptors, group, cores, priority. The
system shows it as one, too. Only Python has been started before, and modules have been imported.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import os
import pickle
import runpy
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from spreeze.host.lifetime import die_with_parent

MOST_BYTES, MOST_DESCRIPTORS = 1 << 17, 250  # of an order: the system takes not many more of either
UNUSED = 1 << 9  # and above: numbers that no program has asked for

# A program that shows others as its own has room for that where its own were.
ROOM_FOR_WORDS, ROOM_FOR_VARIABLES = "-" * (1 << 14), {"SPREEZE_TEST_ROOM": "-" * (1 << 15)}


# How many processes a command has ready: those of a training with one sampler and two learners, one that examines,
# the trainings and bare loops of a benchmark, and two trainings of a script.
WAITING = {"train": 5, "resume": 5, "doctor": 1, "bench": 8, "tune": 12, "script": 10}
# Most that are refused are refused before they start a program, and five forks take 0.1 s of CPU time. Other commands
# import modules of the user before, which a program would import on its own.
NEED_NONE_AT_FIRST = ("train", "resume")


def wait_for_programs(words: Sequence[str]) -> None:
    """Have forks for what `spreeze WORDS` starts, from now on."""
    if "--serial" not in words:
        command = words[0] if words else ""
        WaitingForks(WAITING.get(command, 0), at_once=command not in NEED_NONE_AT_FIRST).serve()


class WaitingForks:
    """Children that become programs of ours, one each. Where none is left, a program is one."""

    def __init__(self, count: int, at_once: bool) -> None:
        """To be called while there is one thread. at_once: whether to fork now, and not when one is needed."""
        self._count = count
        self._orders: list[tuple[int, socket.socket]] = []
        self._handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
        if at_once:
            self._fork()

    def _fork(self) -> None:
        assert threading.active_count() == 1, "a fork of a process with threads may wait for ever"
        count, self._count = self._count, 0
        parent = os.getpid()
        for _ in range(count):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            pid = os.fork()
            if not pid:
                self._forget_command()
                die_with_parent(parent)
                os.setpgid(0, 0)  # Ctrl-C is for the command
                os.closerange(3, theirs.fileno())
                os.closerange(theirs.fileno() + 1, UNUSED)
                _wait_for_order(theirs)
            theirs.close()
            self._orders.append((pid, ours))
        atexit.register(self._end)

    def _forget_command(self) -> None:
        """In a fork, leave to the command what it has begun: its reactions to signals, files to delete at its end."""
        for number, handler in self._handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        weakref.finalize._registry.clear()  # type: ignore[attr-defined]
        self._orders.clear()  # of those that were forked before

    def _end(self) -> None:
        """End those that have become nothing."""
        for pid, orders in self._orders:
            orders.close()
            with contextlib.suppress(ChildProcessError):  # the run has ended it with all its processes
                os.waitpid(pid, 0)

    def serve(self) -> None:
        """Be what `subprocess.Popen` starts, from now on."""
        start_program = subprocess.Popen._execute_child  # type: ignore[attr-defined]

        def start(process: Any, words: Sequence[str], *more: Any) -> None:
            # Of what a program can be given, what ours are: a folder or a session of their own they are not.
            _, _, _, descriptors, folder, variables, _, _, _, *pipes = more[:15]
            has_own_session, group = more[-2:]
            is_ours = words[0] == sys.executable and "-m" in words and module_of(words).startswith("spreeze")
            if is_ours and folder is None and not has_own_session and self._count:
                self._fork()
            if is_ours and folder is None and not has_own_session and self._orders:
                self._start(process, words, variables or os.environ, descriptors, pipes, group)
            else:
                start_program(process, words, *more)

        subprocess.Popen._execute_child = start  # type: ignore[attr-defined]

    def _start(
        self,
        process: Any,
        words: Sequence[str],
        variables: Mapping[str, str],
        descriptors: Sequence[int],
        pipes: Sequence[int],
        group: int,
    ) -> None:
        """Do what `Popen` does in this method. group: 0 for one of its own, -1 for that of this process."""
        stdin, _, _, stdout, _, stderr = pipes
        pid, orders = self._orders.pop()
        outputs = ((number, number if fd == -1 else fd) for number, fd in enumerate((stdin, stdout, stderr)))
        given = *outputs, *((each, each) for each in descriptors)
        order = pickle.dumps((words, dict(variables), [number for number, _ in given], group))
        socket.send_fds(orders, [order], [fd for _, fd in given])
        orders.recv(1)  # as `Popen` waits for the program: from here on it is what it is to be
        orders.close()
        process.pid, process._child_created = pid, True
        process._close_pipe_fds(*pipes)


def module_of(words: Sequence[str]) -> str:
    return words[words.index("-m") + 1]


def _wait_for_order(orders: socket.socket) -> NoReturn:
    """Wait to be told what to be, and be it to its end."""
    message, received, *_ = socket.recv_fds(orders, MOST_BYTES, MOST_DESCRIPTORS)
    if not message:
        os._exit(0)  # the command has ended
    words, variables, numbers, group = pickle.loads(message)
    parent, ready = os.getppid(), fcntl.fcntl(orders.fileno(), fcntl.F_DUPFD, UNUSED)
    received = [fcntl.fcntl(fd, fcntl.F_DUPFD, UNUSED) for fd in received]
    os.closerange(0, UNUSED)
    for fd, number in zip(received, numbers, strict=True):
        os.dup2(fd, number)
    if group:
        os.setpgid(0, os.getpgid(parent))
    os.sched_setaffinity(0, os.sched_getaffinity(parent))
    os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, parent))
    become(words, variables)
    os.write(ready, b".")
    os.closerange(UNUSED, 1 << 16)
    module, at = module_of(words), words.index("-m") + 1
    if module == "spreeze":
        wait_for_programs(words[at + 1 :])
    sys.argv = list(words[at:])
    run_to_its_end(lambda: runpy.run_module(module, run_name="__main__", alter_sys=True))


def run_to_its_end(program: Callable[[], object]) -> NoReturn:
    """Run a program, and end as Python does, but without taking all modules apart: with torch that takes 0.2 s."""
    code: Any = 0
    try:
        program()
    except SystemExit as error:
        code = error.code or 0
        if not isinstance(code, int):
            raise
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for output in (sys.stdout, sys.stderr):
        output.flush()
    os._exit(code)


def become(words: Sequence[str], variables: Mapping[str, str]) -> None:
    """Have these words and variables, for this process and for those who look at it."""
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:0] = [entry for entry in variables.get("PYTHONPATH", "").split(os.pathsep) if entry not in sys.path]
    # From the start of the words to the end of the variables, in the order of proc(5).
    places = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:49]
    words_at, words_end, variables_at, variables_end = map(int, places)
    for start, end, texts in (
        (words_at, words_end, words),
        (variables_at, variables_end, [f"{name}={value}" for name, value in variables.items()]),
    ):
        block = b"".join(os.fsencode(text) + b"\0" for text in texts)
        assert len(block) < end - start, "there is no room for what the system is to show"
        ctypes.memmove(start, block.ljust(end - start, b"\0"), end - start)
