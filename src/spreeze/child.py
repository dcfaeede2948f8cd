"""How a process of a run is started, and how it begins and ends.

`start` runs in the supervisor: a new program (`python -m spreeze.child ROLE`), never a fork, so that no
`__main__` guard is needed and CUDA works. The child imports what its role needs while the supervisor is still
busy, then waits for its `ChildSpec`, which comes through a pipe. The pipe's end of file tells it that the
supervisor is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from spreeze.channels import Channels
from spreeze.channels.control import MessageReader, MessageWriter
from spreeze.checkpoint import Manifest
from spreeze.config import Config
from spreeze.errors import EnvironmentSetupError, one_line
from spreeze.logs import print_forgivingly

if TYPE_CHECKING:
    from spreeze.envs import EnvSpec, Spaces

Role = Literal["sample", "learn", "learn_split", "evaluate", "view", "dashboard", "record"]
ROLE_NAMES: Mapping[Role, str] = {
    "sample": "sampler",
    "learn": "learner",
    "learn_split": "learner",
    "evaluate": "evaluator",
    "view": "viewer",
    "dashboard": "dashboard",
    "record": "recorder",
}

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Film:
    """A video to make."""

    weights: Path
    target: Path
    seed: int
    max_work_s: float
    """It ends early when making it takes longer."""


@dataclass(frozen=True)
class ChildSpec:
    """All that a process is told."""

    index: int
    """Which of the samplers this is; 0 for the others."""
    slot: int
    """Where its heartbeat stands."""
    config: Config
    env: EnvSpec
    spaces: Spaces
    run_dir: Path
    started_at: float
    """`time.monotonic()` at the start of the command."""
    channels: Channels
    generation: int = 0
    """How many samplers had the same index before."""
    checkpoints: tuple[Manifest, ...] = ()
    """Those that a learner goes on from: the first; the others stay valid."""
    film: Film | None = None
    """What a recorder is to make."""


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


def name_of(role: Role, index: int) -> str:
    """Return what people call a process: learner, actor learner, sampler 3."""
    if role == "learn_split":
        return ("critic learner", "actor learner")[index]
    return f"{ROLE_NAMES[role]} {index}" if role == "sample" else ROLE_NAMES[role]


def start(role: Role, index: int, slot: int, channels: Channels, log_path: Path, threads: int) -> Child:
    """Start a process. What it prints goes to its log, not to the user's terminal."""
    spec_read, spec_write = os.pipe()
    message_read, message_write = os.pipe()
    # -P and the parent's own path: the child finds the same modules, also those beside the user's script.
    command = [
        sys.executable,
        "-P",
        "-m",
        "spreeze.child",
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


def thread_variables(threads: int) -> dict[str, str]:
    """Return what tells the libraries of a new process how many threads to use and how to wait for them."""
    # Before NumPy is imported: a BLAS that takes every core in every sampler costs a factor of 14.
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
    # Threads that wait for each other by spinning collapse when something else takes a core. Updates/s of two
    # threads on two cores, alone and beside two busy processes: by default 226 to 279 and 16 to 23, with a short
    # spin 233 to 250 and 50 to 75, sleeping at once 135 to 141 and 72 to 75.
    return {**dict.fromkeys(names, str(threads)), "GOMP_SPINCOUNT": "1000"}


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


def main() -> None:
    """Run one process, from its start to its end."""
    role, spec_fd, message_fd, parent = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    die_with_parent(parent)
    messages = MessageWriter(message_fd)
    print_forgivingly()
    try:
        # The slow part, before the spec is there. What is imported stays: to look through it for rubbish as it grows
        # takes a tenth of the time (torch: 1.47 to 1.70 s of CPU time with, 1.32 to 1.47 s without).
        gc.disable()
        module = importlib.import_module(f"spreeze.processes.{role}")
        gc.enable()
        spec = _receive_spec(spec_fd)
        if spec is None:
            return
        messages.send("ready")
        threading.Thread(target=_exit_at_end_of_file, args=(spec_fd,), daemon=True).start()
        module.run(spec, messages)
    except BaseException as error:
        reason = f"{type(error).__name__}: {one_line(error)}"
        messages.send("error", reason=reason, traceback=traceback.format_exc(), error=type(error).__name__)
        sys.exit(1)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    # Not through the interpreter's shutdown: a library's threads or atexit handlers must not delay the end.
    os._exit(0)


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to kill this process when its parent ends, however it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)  # it ended before we could ask


def _receive_spec(fd: int) -> ChildSpec | None:
    header = _read_exactly(fd, 8)
    payload = _read_exactly(fd, int.from_bytes(header, "little")) if header else b""
    if not payload:
        return None  # the supervisor ended before it had a spec to send
    spec = pickle.loads(payload)  # from our own supervisor through an inherited pipe, never from a file
    assert isinstance(spec, ChildSpec)
    return spec


def _read_exactly(fd: int, byte_count: int) -> bytes:
    chunks = b""
    while len(chunks) < byte_count:
        chunk = os.read(fd, byte_count - len(chunks))
        if not chunk:
            return b""
        chunks += chunk
    return chunks


def _exit_at_end_of_file(fd: int) -> None:
    # For systems without PR_SET_PDEATHSIG; blocks for the life of the process.
    os.read(fd, 1)
    os._exit(1)


if __name__ == "__main__":
    from spreeze.child import main as run_as_module  # one copy of this module, so that ChildSpec is one class

    run_as_module()
