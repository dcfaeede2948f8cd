from __future__ import annotations

import subprocess
import sys

import pytest

from spreeze.channels.frames import MAX_FRAME_BYTES, Frame, FramesChannel

# Every byte of a frame is its number modulo 251: one that is torn has two kinds.
WRITER = """
import sys, pickle
channel = pickle.loads(bytes.fromhex(sys.argv[1]))
writer = channel.writer()
for number in range(1, 20_001):
    writer.write(bytes([number % 251]) * (1000 + number % 500), number, number / 2, number, number / 4)
"""


def test_the_newest_frame_is_read_once() -> None:
    channel = FramesChannel()
    writer, reader = channel.writer(), channel.reader()
    assert reader.newest() is None
    assert writer.write(b"one", 1, -1.5, 10, 100.25)
    assert writer.write(b"two", 2, -2.5, 11, 101.5)
    assert reader.newest() == Frame(2, b"two", 2, -2.5, 11, 101.5)
    assert reader.newest() is None
    assert channel.reader().newest() == Frame(2, b"two", 2, -2.5, 11, 101.5)
    channel.close()


def test_a_frame_that_is_too_large_is_refused_and_the_one_before_stays() -> None:
    channel = FramesChannel()
    writer = channel.writer()
    writer.write(b"one", 1, 0.0, 1, 0.0)
    assert not writer.write(bytes(MAX_FRAME_BYTES + 1), 2, 0.0, 2, 0.0)
    frame = channel.reader().newest()
    assert frame is not None
    assert frame.jpeg == b"one"
    channel.close()


def test_a_writer_after_one_that_was_killed_goes_on() -> None:
    channel = FramesChannel()
    writer = channel.writer()
    writer.write(b"one", 1, 0.0, 1, 0.0)
    writer._header["sequence"] += 1  # as if killed in the middle
    assert channel.reader().newest() is None
    channel.writer().write(b"two", 2, 0.0, 2, 0.0)
    frame = channel.reader().newest()
    assert frame is not None
    assert frame.jpeg == b"two"
    channel.close()


@pytest.mark.parametrize("readers", [1, 3])
def test_no_frame_of_another_process_is_torn_or_older_than_the_one_before(readers: int) -> None:
    import pickle

    channel = FramesChannel()
    spec = pickle.dumps(channel).hex()
    process = subprocess.Popen([sys.executable, "-c", WRITER, spec], pass_fds=channel.descriptors)
    ends = [channel.reader() for _ in range(readers)]
    last, seen = [0] * readers, 0
    while min(last) < 20_000:
        ended = process.poll() is not None
        for i, reader in enumerate(ends):
            frame = reader.newest()
            if frame is None:
                continue
            assert frame.jpeg == bytes([frame.version % 251]) * (1000 + frame.version % 500)
            assert (frame.number, frame.episode_steps, 4 * frame.published_at) == (frame.version,) * 3
            assert frame.version > last[i]
            last[i] = frame.version
            seen += 1
        assert not ended or min(last) == 20_000
    assert process.wait() == 0
    assert seen >= readers  # a busy machine may show each of them the last one only
    channel.close()
