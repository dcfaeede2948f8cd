"""The end of a run: processes are waited for while their messages are read, and signals cut no message short."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spreeze.channels.control import MessageReader
from spreeze.supervision.launch import Child
from spreeze.supervision.signals import Signals
from spreeze.supervision.workers import _wait_for

LINES = 4000  # some 200 KB, several times what a pipe holds
TALKATIVE = """
import os, sys
line = b'{"kind": "event", "event": "choice", "reason": "%s"}\\n' % (b"x" * 20)
for _ in range(int(sys.argv[2])):
    os.write(int(sys.argv[1]), line)
"""


@pytest.fixture
def talkative(tmp_path: Path) -> Child:
    """A process that ends once it has sent more messages than its pipe holds."""
    message_read, message_write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", TALKATIVE, str(message_write), str(LINES)], pass_fds=[message_write], process_group=0
    )
    os.close(message_write)
    _, brief_write = os.pipe()
    return Child("evaluator", 0, 0, process, MessageReader(message_read), tmp_path / "log", brief_write)


def test_messages_are_read_while_processes_end(talkative: Child) -> None:
    received: list[object] = []
    _wait_for([talkative], time.monotonic() + 60.0, lambda: received.extend(talkative.receive()))
    received.extend(talkative.receive())
    assert talkative.process.poll() == 0
    assert len(received) == LINES
    talkative.close()


def test_a_process_that_nobody_reads_does_not_end(talkative: Child) -> None:
    _wait_for([talkative], time.monotonic() + 1.0)
    assert talkative.process.poll() is None
    talkative.kill()
    talkative.close()


def test_a_signal_waits_for_what_is_held_back() -> None:
    done: list[str] = []

    def handle_a_message(signals: Signals) -> None:
        with signals.held_back():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("the whole message")

    with Signals() as signals:
        with pytest.raises(KeyboardInterrupt), signals.raising_after(0):
            handle_a_message(signals)
        assert done == ["the whole message"]
        with signals.held_back():  # where nothing is raised, nothing is raised at its end either
            os.kill(os.getpid(), signal.SIGINT)
    assert signals.count == 2
