"""What both ways of weights promise, and what only shared memory has to: no half version, no number twice."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

import numpy as np
import pytest

from spreeze.channels.weight_block import WeightBlock
from spreeze.channels.weights import FILE_EVERY, KEPT_VERSIONS, WeightsChannel, read_weights, version_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from conftest import FullDisk

GUARD_S = 60.0  # ends a test that would hang; nothing is asserted about time
VERSIONS = 500
ROOM_BYTES = 1 << 20

READ_ONE = """
import pickle, sys
channel = pickle.load(sys.stdin.buffer)
newest = channel.reader().newest()
bytes_of = {name: (t.shape, t.dtype.str, t.tobytes()) for name, t in newest.tensors.items()}
sys.stdout.buffer.write(pickle.dumps(bytes_of))
"""

# Publishes versions that can be told apart everywhere, until it has made so many or is killed.
WRITE_MANY = """
import pickle, sys
import numpy as np
channel, versions = pickle.load(sys.stdin.buffer)
writer = channel.writer()
for value in range(1, versions + 1):
    version = writer.publish({name: np.full((128, 128), value, np.float32) for name in "abc"}, {"said": str(value)})
    if value == 1:
        print("published", flush=True)
        sys.stdin.buffer.read(1)
writer.close()
"""

# Reads without pause until the last version is there.
READ_MANY = """
import json, pickle, sys
import numpy as np
channel, versions = pickle.load(sys.stdin.buffer)
reader, seen, faults = channel.reader(), [], []
while not seen or seen[-1] < versions:
    newest = reader.newest()
    if newest is None:
        continue
    values = {float(value) for tensor in newest.tensors.values() for value in np.unique(tensor)}
    if len(newest.tensors) != 3 or values != {float(newest.metadata["said"])} or newest.version not in values:
        faults.append(f"version {newest.version} holds {values} and {newest.metadata}")
    seen.append(newest.version)
    if len(seen) == 1:
        print("seen", flush=True)
print(json.dumps({"seen": seen, "faults": faults[:5]}), flush=True)
"""


# Overwrites the block without pause: every byte of a version says which it is.
WRITE_BLOCK = """
import pickle, sys
block, versions = pickle.load(sys.stdin.buffer)
for version in range(1, versions + 1):
    block.write(version, bytes([version % 251]) * (1 << 20))
"""

# Reads whatever is there meanwhile.
READ_BLOCK = """
import json, pickle, sys
block, versions = pickle.load(sys.stdin.buffer)
last, whole, torn = 0, 0, 0
print("ready", flush=True)
while last < versions:
    version = max(int(block._slot(slot)[0]["version"][0]) for slot in (0, 1))
    content = block.read(version) if version else None
    if content is not None:
        last = max(last, version)
        is_whole = content.count(bytes([version % 251])) == len(content) == 1 << 20
        whole, torn = whole + is_whole, torn + (not is_whole)
print(json.dumps({"whole": whole, "torn": torn}), flush=True)
"""


@pytest.fixture(params=["file", "shm"])
def channel(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WeightsChannel]:
    made = make(tmp_path, request.param)
    yield made
    made.close()


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[WeightsChannel]:
    made = make(tmp_path, "shm")
    yield made
    made.close()


def make(folder: Path, transport: Literal["file", "shm"]) -> WeightsChannel:
    channel = WeightsChannel(folder, transport)
    channel.allocate(ROOM_BYTES)
    return channel


def publish(channel: WeightsChannel, values: range) -> list[int]:
    writer = channel.writer()
    return [writer.publish({"a": np.full(3, value, np.float32)}, {}) for value in values]


def files(folder: Path) -> list[int]:
    return sorted(int(path.stem.partition("-")[2]) for path in folder.iterdir())


def start(program: str, channel: WeightsChannel | WeightBlock, *more: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=channel.descriptors,
    )
    assert process.stdin is not None
    process.stdin.write(pickle.dumps((channel, *more) if more else channel))
    process.stdin.flush()
    return process


def line_of(stream: IO[bytes] | None) -> bytes:
    assert stream is not None
    return stream.readline()


def test_another_process_gets_exactly_the_bytes_that_were_published(channel: WeightsChannel) -> None:
    rng = np.random.default_rng(0)
    tensors: dict[str, NDArray[np.float32]] = {
        "actor.0.weight": rng.standard_normal((17, 256)).astype(np.float32),
        "actor.0.bias": rng.standard_normal(256).astype(np.float32).T,
        "transposed": rng.standard_normal((5, 7)).astype(np.float32).T,
    }
    channel.writer().publish(tensors, {"env": "Pendulum-v1"})

    got = pickle.loads(start(READ_ONE, channel).communicate(timeout=GUARD_S)[0])

    assert got == {name: (t.shape, t.dtype.str, t.tobytes()) for name, t in tensors.items()}


def test_no_reader_ever_gets_half_a_version_nor_an_older_one(channel: WeightsChannel) -> None:
    readers = [start(READ_MANY, channel, VERSIONS) for _ in range(2)]
    writer = start(WRITE_MANY, channel, VERSIONS)
    try:
        assert {line_of(reader.stdout) for reader in readers} == {b"seen\n"}
        writer.communicate(b"!", GUARD_S)  # from here on all run at once
        reports = [json.loads(reader.communicate(timeout=GUARD_S)[0]) for reader in readers]
    finally:
        for process in (*readers, writer):
            process.kill()
            process.wait()
    for report in reports:
        assert report["faults"] == []
        assert report["seen"] == sorted(set(report["seen"]))
        assert report["seen"][-1] == VERSIONS


def test_a_learner_that_is_killed_leaves_a_whole_version_and_the_next_counts_on(channel: WeightsChannel) -> None:
    reader, last = channel.reader(), 0
    for _ in range(2):
        writer = start(WRITE_MANY, channel, 10**9)
        assert line_of(writer.stdout) == b"published\n"
        assert writer.stdin is not None
        writer.stdin.write(b"!")
        writer.stdin.flush()
        while (newest := reader.newest()) is None or newest.version < last + 20:
            assert writer.poll() is None
        writer.kill()
        writer.wait()
        late = channel.reader().newest()  # as a sampler does that is started now
        assert late is not None
        assert {float(value) for tensor in late.tensors.values() for value in np.unique(tensor)} == {
            float(late.metadata["said"])
        }
        (last,) = publish(channel, range(1))
        assert last == late.version + 1


def test_half_a_version_is_not_read(shared: WeightsChannel) -> None:
    publish(shared, range(1, 4))
    block = shared._block
    assert block is not None
    header, room = block._slot(4)
    header["version"] = 0
    room[:100] = 255  # where a learner was killed that wrote version 4
    newest = shared.reader().newest()
    assert newest is not None
    assert (newest.version, newest.tensors["a"][0]) == (3, 3.0)
    assert publish(shared, range(4, 5)) == [4]


def test_a_version_that_is_overwritten_while_it_is_copied_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    block = WeightBlock()
    block.allocate(8)
    block.write(1, b"11111111")
    header, room = block._slot(1)

    class BusyRoom:
        def __getitem__(self, part: slice) -> NDArray[np.uint8]:
            copied = room[part].copy()
            monkeypatch.undo()
            block.write(3, b"33333333")
            return copied

    monkeypatch.setattr(block, "_slot", lambda _version: (header, BusyRoom()))
    assert block.read(1) is None
    assert block.read(3) == b"33333333"
    block.close()


def test_no_reader_of_the_block_gets_bytes_of_two_versions() -> None:
    block = WeightBlock()
    block.allocate(ROOM_BYTES)
    readers = [start(READ_BLOCK, block, VERSIONS) for _ in range(2)]
    assert {line_of(reader.stdout) for reader in readers} == {b"ready\n"}
    writer = start(WRITE_BLOCK, block, VERSIONS)
    try:
        reports = [json.loads(reader.communicate(timeout=GUARD_S)[0]) for reader in readers]
    finally:
        for process in (*readers, writer):
            process.kill()
            process.wait()
        block.close()
    assert [report["torn"] for report in reports] == [0, 0]
    assert all(report["whole"] > 0 for report in reports)


def test_the_first_every_eighth_and_the_last_version_have_files(shared: WeightsChannel, tmp_path: Path) -> None:
    writer = shared.writer()
    for value in range(1, 2 * FILE_EVERY + 4):
        writer.publish({"a": np.full(3, value, np.float32)}, {})
    assert files(tmp_path) == [1, 1 + FILE_EVERY, 1 + 2 * FILE_EVERY]
    writer.close()
    last = 2 * FILE_EVERY + 3
    assert files(tmp_path)[-1] == last
    tensors, metadata = read_weights(version_path(tmp_path, last), must_have_checksum=True)
    assert (tensors["a"][0], metadata["version"]) == (last, str(last))


def test_old_files_are_deleted(shared: WeightsChannel, tmp_path: Path) -> None:
    publish(shared, range(KEPT_VERSIONS * FILE_EVERY + 5))
    kept = files(tmp_path)
    assert len(kept) == KEPT_VERSIONS
    assert kept[-1] == 1 + KEPT_VERSIONS * FILE_EVERY


def test_a_later_sitting_begins_with_the_newest_file_and_repeats_no_number(
    shared: WeightsChannel, tmp_path: Path
) -> None:
    published = publish(shared, range(FILE_EVERY))  # all but the first have no file, as after a kill
    later = make(tmp_path, "shm")
    later.resume_from_newest()
    newest = later.reader().newest()
    assert newest is not None
    assert (newest.version, newest.tensors["a"][0]) == (1, 0.0)
    first, second = publish(later, range(2))
    assert first > published[-1]
    assert second == first + 1
    later.close()


def test_a_full_disk_keeps_no_version_from_its_readers(
    shared: WeightsChannel, tmp_path: Path, full_disk: FullDisk
) -> None:
    writer, reader = shared.writer(), shared.reader()
    with full_disk(0):
        for version in (1, 2):
            with pytest.raises(OSError, match="File too large"):
                writer.publish({"a": np.zeros(3, np.float32)}, {})
            newest = reader.newest()
            assert newest is not None
            assert newest.version == version
    writer.publish({"a": np.zeros(3, np.float32)}, {})
    assert files(tmp_path) == [3]  # the file that was due


def test_a_policy_that_is_larger_than_planned_is_refused(shared: WeightsChannel) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        shared.writer().publish({"a": np.zeros(1 << 20, np.float32)}, {})
    assert shared.reader().newest() is None
