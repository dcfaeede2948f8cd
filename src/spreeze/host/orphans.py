"""Ends what a supervisor's processes had started when nobody else is left: `python orphans.py FD MARK GRACE_S`.

In: a pipe that ends when the supervisor does, the mark that all it has started have inherited, how long those may
take that end by themselves, and folders of theirs to delete then. A supervisor that is killed takes its own processes
with it, but not those that environments have started. It is started as a file and imports only what is quick: there
is one for each run, which mostly waits and is dismissed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

VARIABLE = "SPREEZE_STARTED_BY"
GIVE_UP_S = 10.0  # what is still there by then is in an uninterruptible call of the system
POLL_S = 0.01


def end_marked(mark: str) -> None:
    """Kill every process that has inherited a mark which begins like this, until there is none."""
    deadline = time.monotonic() + GIVE_UP_S
    while (found := _marked(mark)) and time.monotonic() < deadline:
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_S)  # for the kernel, which ends them; one may have started another before it was killed


def _marked(mark: str) -> list[int]:
    found, sought = [], f"\0{VARIABLE}={mark}".encode()
    for entry in os.listdir("/proc"):  # noqa: PTH208 (names are what is wanted)
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if entry.isdecimal() and sought in b"\0" + Path("/proc", entry, "environ").read_bytes():
                found.append(int(entry))
    return found


def main() -> None:
    """Wait for the end of the supervisor, or for its word that all is in order."""
    fd, mark, grace_s, folders = int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4:]
    if folders and os.fork():
        os._exit(0)  # its parent's children may be killed together with that, as Ray does: it is none of them
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are the supervisor's to handle
    if not os.read(fd, 1):
        deadline = time.monotonic() + grace_s
        while time.monotonic() < deadline and _marked(mark):
            time.sleep(POLL_S)  # for a sampler that closes a robot
        end_marked(mark)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
