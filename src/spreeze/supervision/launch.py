"""How the supervisor starts a process of a run.

A new program (`python -m spreeze.supervision.worker_main ROLE`), never a fork, so that no `__main__` guard is needed
and CUDA works.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from spreeze.channels import Channels
from spreeze.channels.brief import Brief, EnvironmentBrief, Role, name_of
from spreeze.channels.control import MessageReader
from spreeze.errors import EnvironmentSetupError, one_line
from spreeze.host.logs import open_log
from spreeze.host.process_group import GroupLeader
from spreeze.host.programs import python, python_path
from spreeze.host.threads import thread_variables

START_S = 120.0  # to import libraries, before a process can give a sign of life: a cold disk may be slow

Message = dict[str, Any]
"""What a process has sent: its kind, and fields that depend on it."""
NamedMessage = tuple[str, Message]
"""The name of a process, and what it has sent."""


class ReportedError(NamedTuple):
    """What a process has raised."""

    reason: str
    traceback: str
    error: str
    """The name of the exception."""


@dataclass
class Child:
    """A process of the run, as the supervisor sees it."""

    role: Role
    index: int
    slot: int
    process: GroupLeader
    messages: MessageReader
    log_path: Path
    _brief_fd: int
    is_ready: bool = False
    """Whether it has its brief: before that it has nothing to save, and may be killed."""
    raised: ReportedError | None = None
    """What it has raised, if it has reported that."""

    @property
    def name(self) -> str:
        """What people call it."""
        return name_of(self.role, self.index)

    @property
    def is_learner(self) -> bool:
        """Whether it is the learner, or one side of it."""
        return self.role in ("learner", "split_learner")

    def receive(self) -> list[NamedMessage]:
        """Return what has arrived from it. That it is ready, or has raised, is kept here and not returned."""
        received: list[NamedMessage] = []
        for message in self.messages.read():
            if message["kind"] == "ready":
                self.is_ready = True
            elif message["kind"] == "error":
                self.raised = ReportedError(message["reason"], message["traceback"], message["error"])
            else:
                received.append((self.name, message))
        return received

    def silence_limit_s(self, hang_s: float) -> float:
        """Return after how long without a sign of life it hangs."""
        return hang_s if self.is_ready else max(hang_s, START_S)

    def describe_exit(self) -> str:
        """Return how it ended, where it has reported no error."""
        code = self.process.returncode
        how = f"it was killed by {_signal_name(-code)}" if code < 0 else f"it exited with code {code}"
        return f"{how}; its output is in {self.log_path}"

    def send_brief(self, brief: Brief | EnvironmentBrief) -> None:
        """Send its brief. The pipe stays open: its end of file means that the supervisor is gone."""
        import cloudpickle  # only here: it can send environments that were defined in a script or a notebook

        try:
            payload = cloudpickle.dumps(brief)
        except Exception as error:
            raise EnvironmentSetupError(
                f"{brief.env.name} cannot be sent to another process: {one_line(error)}; "
                "make what it holds inside the callable"
            ) from error
        # In a thread, because a pipe holds 64 KB and the child reads only after its imports.
        threading.Thread(target=self._send, args=(payload,), daemon=True).start()

    def _send(self, payload: bytes) -> None:
        view = memoryview(len(payload).to_bytes(8, "little") + payload)
        with contextlib.suppress(BrokenPipeError, OSError):  # a child that died is noticed by its exit
            while view:
                view = view[os.write(self._brief_fd, view) :]

    def kill(self) -> None:
        """End it now, with all that it started."""
        self.process.kill()

    def close(self) -> None:
        """Let go of the pipes."""
        self.messages.close()
        os.close(self._brief_fd)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # of those for real time, not all have names


def start(role: Role, index: int, slot: int, channels: Channels, log_path: Path, threads: int) -> Child:
    """Start a process. What it prints goes to its log, not to the user's terminal."""
    brief_read, brief_write = os.pipe()
    message_read, message_write = os.pipe()
    command = python(
        "-m", "spreeze.supervision.worker_main", role, str(brief_read), str(message_write), str(os.getpid())
    )
    environment = {**os.environ, "PYTHONPATH": python_path(), **thread_variables(threads)}
    try:
        with os.fdopen(open_log(log_path), "ab") as log:
            descriptors = (brief_read, message_write, *channels.descriptors)
            process = GroupLeader(command, environment, descriptors, log.fileno())
    except OSError:
        os.close(brief_write)
        os.close(message_read)
        raise
    finally:
        os.close(brief_read)
        os.close(message_write)
    return Child(role, index, slot, process, MessageReader(message_read), log_path, brief_write)
