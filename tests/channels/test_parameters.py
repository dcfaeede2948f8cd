"""The mailbox: whole messages, the newest only, also under stress."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time

import numpy as np
import pytest

from spreeze.channels.parameters import MAX_NUMBERS, MailboxChannel

COUNT = 100_003
STRESS_MESSAGES = 1500
GUARD_S = 120.0

# Every parameter of a message is its number: a torn message has two kinds.
WRITER_PROGRAM = """
import pickle, sys
import numpy as np
channel, messages, count = pickle.load(sys.stdin.buffer)
writer = channel.writer()
for number in range(1, messages + 1):
    for _ in range(30):  # the work between two messages
        parameters = np.full(count, number, np.float32)
    writer.send(parameters, number, (number, -number))
"""


def mailbox(count: int = 4) -> MailboxChannel:
    channel = MailboxChannel("test")
    channel.allocate(count)
    return channel


def values(*numbers: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array(numbers, np.float32)


def test_an_empty_mailbox_has_no_message() -> None:
    assert mailbox().reader().newest() is None


def test_a_message_is_read_once() -> None:
    channel = mailbox()
    reader = channel.reader()
    channel.writer().send(values(1, 2, 3, 4), 7, (5, 6))
    message = reader.newest()
    assert message is not None
    assert message.updates == 7
    assert message.numbers == (5, 6)
    np.testing.assert_array_equal(message.parameters, [1, 2, 3, 4])
    assert reader.newest() is None


def test_only_the_newest_counts() -> None:
    channel = mailbox(1)
    writer, reader = channel.writer(), channel.reader()
    for number in range(5):
        writer.send(values(number), number)
    message = reader.newest()
    assert message is not None
    assert (message.updates, message.parameters.tolist()) == (4, [4.0])


def test_a_message_does_not_change_after_it_was_read() -> None:
    channel = mailbox(2)
    writer, reader = channel.writer(), channel.reader()
    writer.send(values(1, 1), 1)
    message = reader.newest()
    writer.send(values(2, 2), 2)
    assert message is not None
    np.testing.assert_array_equal(message.parameters, [1, 1])


@pytest.mark.parametrize("count", [0, 1, MAX_NUMBERS])
def test_numbers_come_along(count: int) -> None:
    channel = mailbox(1)
    channel.writer().send(values(0), 1, tuple(range(count)))
    message = channel.reader().newest()
    assert message is not None
    assert message.numbers == tuple(range(count))


def test_waiting_ends_when_the_run_does() -> None:
    asked = iter([False, False, True])
    assert mailbox().reader().wait(lambda: next(asked)) is None


def test_waiting_ends_with_a_message() -> None:
    channel = mailbox(1)
    writer, reader = channel.writer(), channel.reader()
    asked = 0

    def stopping() -> bool:
        nonlocal asked
        asked += 1
        if asked == 3:
            writer.send(values(9), 1)
        return False

    message = reader.wait(stopping)
    assert message is not None
    assert message.parameters.tolist() == [9.0]


def test_messages_are_whole_and_never_older_while_another_process_writes() -> None:
    channel = mailbox(COUNT)
    reader = channel.reader()
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", WRITER_PROGRAM], stdin=subprocess.PIPE, pass_fds=channel.descriptors
    )
    assert process.stdin is not None
    pickle.dump((channel, STRESS_MESSAGES, COUNT), process.stdin)
    process.stdin.close()
    last, messages, guard = 0, 0, time.monotonic() + GUARD_S
    try:
        while last < STRESS_MESSAGES and time.monotonic() < guard:
            message = reader.newest()
            if message is None:
                continue
            assert message.updates > last
            assert message.numbers == (message.updates, -message.updates)
            assert np.all(message.parameters == message.updates), "torn"
            last, messages = message.updates, messages + 1
        assert process.wait(GUARD_S) == 0
    finally:
        process.kill()
        process.wait()
    assert last == STRESS_MESSAGES
    assert messages > 10
