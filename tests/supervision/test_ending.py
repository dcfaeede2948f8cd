"""The end of a run: processes are waited for while their messages are read, and signals cut no message short."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spreeze.channels.control import MessageReader
from spreeze.channels.metrics import MetricsChannel
from spreeze.config import Config
from spreeze.supervision import end, nothing_done
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


def test_the_hint_at_a_video_can_be_typed_where_the_program_is_not_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / ".venv" / "bin" / "spreeze"), "train"])
    (tmp_path / "run" / "best").mkdir(parents=True)
    (tmp_path / "run" / "best" / "policy.safetensors").touch()
    notes: list[str] = []
    run: Any = SimpleNamespace(
        visualisation=object(),
        error=None,
        is_interrupted=True,
        plan=SimpleNamespace(config=Config("Pendulum-v1").replace(video=True)),
        folder=SimpleNamespace(path=tmp_path / "run"),
        log=SimpleNamespace(display=SimpleNamespace(note=notes.append)),
    )
    end._finish_videos(run, Signals())
    hint = ".venv/bin/spreeze watch run --record best.mp4"
    assert notes == [f"There is no video of an interrupted run; {hint} makes one"]


@pytest.mark.parametrize("version", [0, 3])
def test_a_run_says_that_there_is_no_policy_only_where_there_is_none(version: int) -> None:
    metrics = MetricsChannel()
    metrics.learner["rows_stored"] = 5000
    run: Any = SimpleNamespace(
        error=None,
        stop_reason="max_seconds",
        has_updates=False,
        metrics=metrics,
        plan=SimpleNamespace(config=Config("Pendulum-v1")),
        workers=SimpleNamespace(channels=SimpleNamespace(weights=SimpleNamespace(open_version=lambda: [version]))),
    )
    said = nothing_done.why_no_update(run)
    assert (said is None) == bool(version)  # after a restart from nothing, counters begin again, and versions stay
