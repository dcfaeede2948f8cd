"""Ends what a supervisor's processes had started when nobody else is left.

`python orphans.py FD MARK GRACE_S PID HANG_S [FOLDER ...]`. In: a pipe that ends when the supervisor does, the mark
that all it has started have inherited, how long those may take that end by themselves, the supervisor's number, after
how long without a beat on the pipe it hangs and is killed (0: it sends none), and folders of theirs to delete then. A
supervisor that is killed takes its own processes with it, but not those that environments have started. It is started
as a file and imports only what is quick: there is one for each run, which mostly waits and is dismissed.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

VARIABLE = "SPREEZE_STARTED_BY"
GIVE_UP_S = 10.0  # what is still there by then is in an uninterruptible call of the system
POLL_S = 0.01
BEAT, DISMISSED = b"+", b"."
LOOKS = 10  # in a row without a beat are a hang


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


def _await_word(fd: int, pid: int, hang_s: float) -> bytes:
    """Wait until the supervisor dismisses this process, or has ended: then return nothing."""
    looks_without, poll = 0, select.poll()  # not select(): its numbers end at 1,024
    poll.register(fd, select.POLLIN)
    while True:
        if hang_s and not poll.poll(1000 * hang_s / LOOKS):
            # Looks are counted, not time: where all processes were stopped, or the machine slept, none was missed.
            looks_without += 1
            if looks_without == LOOKS:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)  # its pipe is open, so that its number is still its own
            continue
        looks_without = 0
        word = os.read(fd, 4096)
        if not word or DISMISSED in word:
            return word


def main() -> None:
    """Wait for the end of the supervisor, or for its word that all is in order."""
    fd, mark, grace_s, pid, hang_s = int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4], sys.argv[5]
    folders = sys.argv[6:]
    if folders and os.fork():
        os._exit(0)  # its parent's children may be killed together with that, as Ray does: it is none of them
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are the supervisor's to handle
    if not _await_word(fd, int(pid), float(hang_s)):
        deadline = time.monotonic() + grace_s
        while time.monotonic() < deadline and _marked(mark):
            time.sleep(POLL_S)  # for a sampler that closes a robot
        end_marked(mark)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
