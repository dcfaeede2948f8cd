"""A program and everything that it starts: nothing of it outlives it, however it ends.

An environment may start processes of its own: simulators, servers, workers. They are in the program's process group,
which is killed as soon as the program has ended and before it is reaped, while its number is still its own. Those
that have left the group are found by a variable that they have inherited; on Linux they become this process's
children, because it is their subreaper.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from spreeze.host import orphans
from spreeze.host.orphans import VARIABLE

_OWN_MARK = uuid.uuid4().hex
"""What begins the mark of all that this process starts."""
MOST_KILLED = 10_000  # of a program that starts processes faster than they are killed
DISMISS_S = 1.0  # for the program that ends orphans to end itself, unless somebody has stopped it
REAP_S = 1.0  # a process in an uninterruptible call of the system ends when that does
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37


class GroupLeader(subprocess.Popen[bytes]):
    """A program in a process group of its own."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], descriptors: Sequence[int], log: int
    ) -> None:
        """log: the descriptor of the file that gets what it prints."""
        self._mark = f"{_OWN_MARK}-{uuid.uuid4().hex}"
        super().__init__(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**environment, VARIABLE: self._mark},
            pass_fds=descriptors,
            process_group=0,  # Ctrl-C in the terminal reaches the supervisor alone, which ends the others in order
        )

    def poll(self) -> int | None:
        """Return its exit code once it has ended, and with it all that it had started."""
        if self.returncode is None and _has_ended(self.pid, os.WNOHANG):
            _reap(self._kill_all())
        return super().poll()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and end all that it had started."""
        if self.returncode is None and timeout is None and _has_ended(self.pid, 0):
            _reap(self._kill_all())
        return super().wait(timeout)

    def begin_kill(self) -> None:
        """Let the system begin to end its group, which takes seconds where a process has gigabytes of memory."""
        if self.returncode is None:  # not reaped: its number is still its own
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End it now, with all that it has started."""
        if self.poll() is None:
            others = self._kill_all()
            super().wait()  # until then they are its children, not ours
            _reap(others)

    def _kill_all(self) -> list[psutil.Process]:
        killed: set[psutil.Process] = set()
        # Again, until none is new: one that is found may start another before it is killed, which is nobody's then.
        while True:
            found = set(self._others()) - killed
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            for process in found:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            killed |= found
            if not found or len(killed) > MOST_KILLED:
                return list(killed)

    def _others(self) -> Iterator[psutil.Process]:
        if sys.platform == "linux" and _is_subreaper():
            candidates = iter(psutil.Process().children(recursive=True))
        else:
            candidates = psutil.process_iter()
        own = set[psutil.Process]()
        with contextlib.suppress(psutil.Error):
            own = set(psutil.Process(self.pid).children(recursive=True))  # they may have another environment
        for process in candidates:
            with contextlib.suppress(psutil.Error, OSError):
                if process.pid != self.pid and (
                    process in own
                    or os.getpgid(process.pid) == self.pid
                    or process.environ().get(VARIABLE) == self._mark
                ):
                    yield process


def kill_together(leaders: Sequence[GroupLeader]) -> None:
    """End several programs now, with all that they have started. It takes as long as the slowest of them."""
    for leader in leaders:
        leader.begin_kill()
    for leader in leaders:
        leader.kill()


def _reap(processes: list[psutil.Process]) -> None:
    """Reap those that were killed and have become our children: nobody else does."""
    deadline = time.monotonic() + REAP_S
    while processes and time.monotonic() < deadline:
        for process in processes[:]:
            try:
                # Else its parent, which is killed too, has not ended yet.
                if process.ppid() == os.getpid() and os.waitpid(process.pid, os.WNOHANG)[0]:
                    processes.remove(process)
            except (psutil.Error, ChildProcessError):
                processes.remove(process)
        time.sleep(0.001)  # for the kernel, which ends them


def _has_ended(pid: int, options: int) -> bool:
    """Return whether a child has ended, without reaping it: until then no other process can have its number."""
    if not hasattr(os, "waitid"):
        return True  # on macOS: the group is killed a moment too early, or after the end
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | options) is not None
    except ChildProcessError:
        return False  # somebody else has reaped it, and its number may be another's


@contextlib.contextmanager
def as_subreaper() -> Iterator[None]:
    """Adopt orphans of descendants within the block, where the system can do that."""
    was_one = _is_subreaper()
    _set_subreaper(True)
    try:
        yield
    finally:
        _set_subreaper(was_one)


@contextlib.contextmanager
def guarded(
    is_alone: bool = False, grace_s: float = 0.0, folder: Path | None = None, hang_s: float = 0.0
) -> Iterator[None]:
    """Let nothing that group leaders start within the block outlive this process, even if it is killed.

    is_alone: whether there will be none, so that no process is needed for that. grace_s: how long those may take that
    end by themselves then. folder: one of theirs, which is deleted if this process is killed; and
    nothing is a child of this process then that has to outlive it. hang_s: after how long without running any thread
    this process is killed, if at all.
    """
    if is_alone or sys.platform != "linux":
        yield
        return
    folders = [] if folder is None else [str(folder)]
    command = (sys.executable, "-I", "-S", orphans.__file__)
    read, write = os.pipe()
    os.set_blocking(write, False)  # nobody reads it while that process is stopped
    process: subprocess.Popen[bytes] | None = None
    with contextlib.suppress(OSError):  # no process is left: the run needs them more
        process = subprocess.Popen(  # noqa: S603 (a program of ours)
            [*command, str(read), _OWN_MARK, str(grace_s), str(os.getpid()), str(hang_s), *folders],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={name: text for name, text in os.environ.items() if name != VARIABLE},
            pass_fds=(read,),
            start_new_session=True,  # a signal to the group of the supervisor is not for it
        )
    os.close(read)
    if process is not None and folders:
        process.wait()  # it has left one that is nobody's child
        process = None
    is_over = threading.Event()
    beats = threading.Thread(target=_beat, args=(write, hang_s / orphans.LOOKS, is_over), name="beats", daemon=True)
    if hang_s:
        beats.start()
    try:
        yield
    finally:
        is_over.set()
        if hang_s:
            beats.join()  # it would write into another file that has the descriptor next
        with contextlib.suppress(OSError):  # somebody has killed it, or there is none
            os.write(write, orphans.DISMISSED)
        if process is not None:
            try:
                process.wait(DISMISS_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        os.close(write)


def _beat(descriptor: int, pause_s: float, is_over: threading.Event) -> None:
    """Show that this process runs, in a thread that never waits for anything else."""
    while not is_over.wait(pause_s):
        with contextlib.suppress(OSError):  # somebody has killed or stopped who reads it
            os.write(descriptor, orphans.BEAT)


@contextlib.contextmanager
def ending_what_is_started() -> Iterator[None]:
    """Kill, after the block, all that was started within it: by an environment that is stepped in this process."""
    with as_subreaper():
        itself = psutil.Process()
        before, killed = set(itself.children(recursive=True)), set[psutil.Process]()
        try:
            yield
        finally:
            while (found := set(itself.children(recursive=True)) - before - killed) and len(killed) < MOST_KILLED:
                for process in found:
                    with contextlib.suppress(psutil.Error):
                        process.kill()
                killed |= found
            _reap(list(killed))


def _is_subreaper() -> bool:
    answer = ctypes.c_int(0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return bool(answer.value)


def _set_subreaper(is_one: bool) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(is_one), 0, 0, 0)
