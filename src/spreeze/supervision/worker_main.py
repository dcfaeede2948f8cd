"""The program that every process of a run starts as: `python -m spreeze.supervision.worker_main ROLE ... [PROGRAM]`.

It imports what its role needs while the supervisor is still busy, then waits for its `Brief`, which comes through a
pipe. The pipe's end of file tells it that the supervisor is gone.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import sys
import threading
import traceback
from collections.abc import Mapping

from spreeze.channels.brief import Brief, EnvironmentBrief
from spreeze.channels.control import MessageWriter
from spreeze.errors import one_line
from spreeze.host.lifetime import CLOSE_GRACE_S, die_with_parent, exit_at_end_of_file, outlive_parent
from spreeze.host.logs import print_forgivingly

# By name: a process imports the room of its own role and no other. Who starts a run names the program of its gateway
# to other machines.
PROGRAMS: Mapping[str, str] = {
    "environment": "spreeze.environments.process",
    "sampler": "spreeze.sampling.process",
    "learner": "spreeze.learning.process",
    "split_learner": "spreeze.learning.split_process",
    "evaluator": "spreeze.evaluation.process",
    "viewer": "spreeze.views.viewer",
    "dashboard": "spreeze.views.dashboard.process",
    "recorder": "spreeze.views.recorder",
}

CLOSE_FIRST = ("environment", "sampler")
"""Those that have a robot to close, and end only then."""


def main() -> None:
    """Run one process, from its start to its end."""
    role, brief_fd, message_fd, parent = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    die_with_parent(parent)
    messages = MessageWriter(message_fd)
    print_forgivingly()
    try:
        # The slow part, before the brief is there. What is imported stays: to look through it for rubbish as it grows
        # takes a tenth of the time (torch: 1.47 to 1.70 s of CPU time with, 1.32 to 1.47 s without).
        gc.disable()
        module = importlib.import_module(PROGRAMS.get(role) or sys.argv[5])
        gc.enable()
        brief = _receive_brief(brief_fd)
        if brief is None:
            return
        messages.send("ready")
        must_close = brief.env.is_realtime and role in CLOSE_FIRST
        if must_close:
            outlive_parent()
        # Where there is no PR_SET_PDEATHSIG, or it was taken back.
        grace_s = CLOSE_GRACE_S if must_close else 0.0
        threading.Thread(target=exit_at_end_of_file, args=(brief_fd, grace_s), daemon=True).start()
        module.run(brief, messages)
    except BaseException as error:
        reason = f"{type(error).__name__}: {one_line(error)}"
        messages.send("error", reason=reason, traceback=traceback.format_exc(), error=type(error).__name__)
        sys.exit(1)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    # Not through the interpreter's shutdown: a library's threads or atexit handlers must not delay the end.
    os._exit(0)


def _receive_brief(fd: int) -> Brief | EnvironmentBrief | None:
    header = _read_exactly(fd, 8)
    payload = _read_exactly(fd, int.from_bytes(header, "little")) if header else b""
    if not payload:
        return None  # the supervisor ended before it had a brief to send
    brief = pickle.loads(payload)  # noqa: S301 (our own supervisor's, through an inherited pipe, never from a file)
    assert isinstance(brief, Brief | EnvironmentBrief)
    return brief


def _read_exactly(fd: int, byte_count: int) -> bytes:
    chunks = b""
    while len(chunks) < byte_count:
        chunk = os.read(fd, byte_count - len(chunks))
        if not chunk:
            return b""
        chunks += chunk
    return chunks


if __name__ == "__main__":
    main()
