"""How the supervisor starts a process of a run.

A new program (`python -m spreeze.supervision.worker_main ROLE`), never a fork, so that no `__main__` guard is needed
and CUDA works.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spreeze.channels import Channels
from spreeze.channels.brief import ChildSpec, Role, name_of
from spreeze.channels.control import MessageReader
from spreeze.errors import EnvironmentSetupError, one_line
from spreeze.host.threads import thread_variables


@dataclass
class Child:
    """A process of the run, as the supervisor sees it."""

    role: Role
    index: int
    slot: int
    process: subprocess.Popen[bytes]
    messages: MessageReader
    log_path: Path
    _spec_fd: int
    is_ready: bool = False
    """Whether it has its spec: before that it has nothing to save, and may be killed."""

    @property
    def name(self) -> str:
        """What people call it."""
        return name_of(self.role, self.index)

    def send_spec(self, spec: ChildSpec) -> None:
        """Tell it what to do. The pipe stays open: its end of file means that the supervisor is gone."""
        import cloudpickle  # only here: it can send environments that were defined in a script or a notebook

        try:
            payload = cloudpickle.dumps(spec)
        except Exception as error:
            raise EnvironmentSetupError(
                f"{spec.env.name} cannot be sent to another process: {one_line(error)}; "
                "make what it holds inside the callable"
            ) from error
        # In a thread, because a pipe holds 64 KB and the child reads only after its imports.
        threading.Thread(target=self._send, args=(payload,), daemon=True).start()

    def _send(self, payload: bytes) -> None:
        view = memoryview(len(payload).to_bytes(8, "little") + payload)
        with contextlib.suppress(BrokenPipeError, OSError):  # a child that died is noticed by its exit
            while view:
                view = view[os.write(self._spec_fd, view) :]

    def kill(self) -> None:
        """End it now, with all that it started."""
        if self.process.poll() is None:  # once it was waited for, its number may be somebody else's
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """Let go of the pipes."""
        self.messages.close()
        os.close(self._spec_fd)


def start(role: Role, index: int, slot: int, channels: Channels, log_path: Path, threads: int) -> Child:
    """Start a process. What it prints goes to its log, not to the user's terminal."""
    spec_read, spec_write = os.pipe()
    message_read, message_write = os.pipe()
    # -P and the parent's own path: the child finds the same modules, also those beside the user's script.
    command = [
        sys.executable,
        "-P",
        "-m",
        "spreeze.supervision.worker_main",
        role,
        str(spec_read),
        str(message_write),
        str(os.getpid()),
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path),
        **thread_variables(threads),
    }
    try:
        process = _popen(command, environment, (spec_read, message_write, *channels.descriptors), log_path)
    except OSError:
        os.close(spec_write)
        os.close(message_read)
        raise
    finally:
        os.close(spec_read)
        os.close(message_write)
    return Child(role, index, slot, process, MessageReader(message_read), log_path, spec_write)


def _popen(
    command: list[str], environment: Mapping[str, str], descriptors: tuple[int, ...], log_path: Path
) -> subprocess.Popen[bytes]:
    with log_path.open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            pass_fds=descriptors,
            process_group=0,  # Ctrl-C in the terminal reaches the supervisor alone, which ends the others in order
        )
