from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from spreeze.channels.control import MAX_PROCESSES, ControlChannel, MessageReader, MessageWriter

GUARD_S = 60.0  # ends a test that would hang; nothing is asserted about time
PIPE_BYTES = 65536

WAITING_PROGRAM = """
import os, pickle, sys
control, slot = pickle.load(sys.stdin.buffer)
control.beat(slot)
print("waits", flush=True)
while not control.stopping():
    os.sched_yield()
"""

SENDING_PROGRAM = """
import os, signal, sys
from spreeze.channels.control import MessageWriter
messages = MessageWriter(int(sys.argv[1]))
for number in range(int(sys.argv[2])):
    messages.send("evaluation", number=number, returns=[number] * (number % 50))
if sys.argv[3] == "die":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def control() -> ControlChannel:
    return ControlChannel()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read_fd, write_fd = os.pipe()
    yield read_fd, write_fd
    for fd in (read_fd, write_fd):
        try:
            os.close(fd)
        except OSError:
            continue  # the test has closed it


def read_until(reader: MessageReader, count: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    guard = time.monotonic() + GUARD_S
    while len(messages) < count and time.monotonic() < guard:
        messages += reader.read()
    return messages


def start_waiting(control: ControlChannel, slot: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", WAITING_PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=control.descriptors,
    )
    assert process.stdin is not None
    pickle.dump((control, slot), process.stdin)
    process.stdin.close()
    return process


def start_sending(write_fd: int, count: int, ending: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-c", SENDING_PROGRAM, str(write_fd), str(count), ending]
    return subprocess.Popen(command, pass_fds=(write_fd,))


# --- stop flag and heartbeats -----------------------------------------------------------------------------------


def test_stop_is_seen_here_and_stays(control: ControlChannel) -> None:
    assert not control.stopping()
    control.stop()
    assert control.stopping()
    control.beat(0)
    assert control.stopping()


def test_beats_do_not_stop_anyone(control: ControlChannel) -> None:
    for slot in (0, MAX_PROCESSES - 1):
        control.beat(slot)
    assert not control.stopping()


def test_stop_is_seen_by_every_process(control: ControlChannel) -> None:
    processes = [start_waiting(control, slot) for slot in range(3)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == b"waits\n"
            assert process.poll() is None
        control.stop()
        assert [process.wait(GUARD_S) for process in processes] == [0, 0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_heartbeat_of_another_process_ends_its_silence(control: ControlChannel) -> None:
    began = time.monotonic()
    control.stop()
    process = start_waiting(control, 2)
    assert process.wait(GUARD_S) == 0
    assert 0 <= control.silence_s(2) <= time.monotonic() - began
    assert control.silence_s(1) >= began  # that one never gave a sign


# --- messages ---------------------------------------------------------------------------------------------------


def test_nothing_to_read_does_not_block(pipe: tuple[int, int]) -> None:
    assert list(MessageReader(pipe[0]).read()) == []


def test_messages_arrive_whole_and_in_order(pipe: tuple[int, int]) -> None:
    reader, writer = MessageReader(pipe[0]), MessageWriter(pipe[1])
    writer.send("evaluation", mean_return=-1.5, returns=[1.0, 2.0])
    writer.send("error", reason="ValueError: größer\nals zwei Zeilen", traceback="line\nline\n")
    assert list(reader.read()) == [
        {"kind": "evaluation", "mean_return": -1.5, "returns": [1.0, 2.0]},
        {"kind": "error", "reason": "ValueError: größer\nals zwei Zeilen", "traceback": "line\nline\n"},
    ]
    assert list(reader.read()) == []


def test_an_event_is_a_message_with_its_kind_its_reason_and_its_details(pipe: tuple[int, int]) -> None:
    MessageWriter(pipe[1]).record_event("choice", "it was fastest", setting="learner_threads", value=2)
    (message,) = MessageReader(pipe[0]).read()
    expected = {"event": "choice", "reason": "it was fastest", "setting": "learner_threads", "value": 2}
    assert message == {"kind": "event", **expected}


def test_half_a_message_waits_for_its_other_half(pipe: tuple[int, int]) -> None:
    reader = MessageReader(pipe[0])
    os.write(pipe[1], b'{"kind": "a"}\n{"kin')
    assert list(reader.read()) == [{"kind": "a"}]
    os.write(pipe[1], b'd": "b"}')
    assert list(reader.read()) == []
    os.write(pipe[1], b"\n")
    assert list(reader.read()) == [{"kind": "b"}]


def test_message_larger_than_the_pipe_arrives_while_somebody_reads(pipe: tuple[int, int]) -> None:
    reader, writer = MessageReader(pipe[0]), MessageWriter(pipe[1])
    texts = [chr(97 + i) * size for i, size in enumerate((10, 3 * PIPE_BYTES, PIPE_BYTES + 1, 5, 20 * PIPE_BYTES))]

    def send_all() -> None:
        for text in texts:
            writer.send("error", traceback=text)

    thread = threading.Thread(target=send_all, daemon=True)
    thread.start()
    received = read_until(reader, len(texts))
    thread.join(GUARD_S)
    assert [message["traceback"] for message in received] == texts


def test_messages_of_another_process_arrive_in_order(pipe: tuple[int, int]) -> None:
    reader = MessageReader(pipe[0])
    process = start_sending(pipe[1], 5000, "end")
    received = read_until(reader, 5000)
    assert process.wait(GUARD_S) == 0
    assert [message["number"] for message in received] == list(range(5000))
    assert all(len(message["returns"]) == message["number"] % 50 for message in received)


def test_messages_of_a_process_that_was_killed_are_read(pipe: tuple[int, int]) -> None:
    reader = MessageReader(pipe[0])
    process = start_sending(pipe[1], 20, "die")
    os.close(pipe[1])
    assert process.wait(GUARD_S) == -signal.SIGKILL
    assert [message["number"] for message in reader.read()] == list(range(20))
    assert list(reader.read()) == []


def test_half_a_message_of_a_process_that_died_is_no_message(pipe: tuple[int, int]) -> None:
    reader = MessageReader(pipe[0])
    os.write(pipe[1], b'{"kind": "a"}\n{"kind": "b"')
    os.close(pipe[1])
    assert list(reader.read()) == [{"kind": "a"}]
    assert list(reader.read()) == []


def test_sending_to_a_supervisor_that_is_gone_is_no_error(pipe: tuple[int, int]) -> None:
    reader, writer = MessageReader(pipe[0]), MessageWriter(pipe[1])
    reader.close()
    with pytest.raises(BrokenPipeError):
        os.write(pipe[1], b"x")
    assert writer.send("evaluation", mean_return=0.0) is None  # type: ignore[func-returns-value]
