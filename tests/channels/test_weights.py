from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import safetensors
from numpy.typing import NDArray
from safetensors.numpy import load_file, save
from weights_promises import *  # noqa: F403 (what files promise, as tests of the fixture `channel`)

from spreeze.channels.weights import (
    KEPT_VERSIONS,
    WeightsChannel,
    WeightsWriter,
    read_weights,
    version_path,
    write_weights,
)

if TYPE_CHECKING:
    from conftest import FullDisk

VERSIONS = 500
GUARD_S = 60.0  # ends a test that would hang; nothing is asserted about time

# Publishes version 1, waits for a word that it was seen, then publishes the rest as fast as it can.
WRITER_PROGRAM = """
import os, pickle, sys
import numpy as np
channel, versions = pickle.load(sys.stdin.buffer)
writer = channel.writer()
for version in range(1, versions + 1):
    tensors = {name: np.full((64, 64), version, np.float32) for name in ("a", "b", "c")}
    writer.publish(tensors, {"said": str(version)})
    if version == 1:
        sys.stdin.buffer.read(1)
"""

# Reads without pause, through the channel and straight from the folder, until the last version is there.
READER_PROGRAM = """
import json, pickle, sys
import numpy as np
from spreeze.channels.weights import read_weights
channel, versions = pickle.load(sys.stdin.buffer)
reader = channel.reader()
seen, files, faults = [], 0, []

def check(tensors, metadata, where):
    values = {float(value) for tensor in tensors.values() for value in np.unique(tensor)}
    if len(tensors) != 3 or values != {float(metadata["said"])} or metadata["version"] != metadata["said"]:
        faults.append(f"{where}: {sorted(tensors)} {values} {metadata}")

while not seen or seen[-1] < versions:
    newest = reader.newest()
    if newest is not None:
        check(newest.tensors, newest.metadata, "channel")
        if newest.version != int(newest.metadata["said"]):
            faults.append(f"version {newest.version} holds {newest.metadata}")
        seen.append(newest.version)
        if len(seen) == 1:
            print("seen", flush=True)
    for path in sorted(channel.folder.glob("policy-*.safetensors"))[-1:]:
        try:
            tensors, metadata = read_weights(path)
        except FileNotFoundError:
            continue
        except Exception as error:
            faults.append(f"{path.name}: {error}")
            continue
        check(tensors, metadata, path.name)
        files += 1
print(json.dumps({"seen": seen, "files": files, "faults": faults[:5]}), flush=True)
"""


@pytest.fixture
def channel(tmp_path: Path) -> WeightsChannel:
    return WeightsChannel(tmp_path)


def publish(writer: WeightsWriter, value: float) -> int:
    return writer.publish({"a": np.full(3, value, np.float32)}, {"value": str(value)})


def test_reader_gets_what_was_published(channel: WeightsChannel) -> None:
    reader = channel.reader()
    tensors = {
        "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "bias": np.array([0.5], np.float32),
    }
    before = time.monotonic()
    version = channel.writer().publish(tensors, {"env": "Pendulum-v1"})
    newest = reader.newest()
    assert newest is not None
    assert newest.version == version == 1
    assert newest.metadata | {"env": "Pendulum-v1", "version": "1"} == newest.metadata
    assert newest.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(newest.tensors[name], tensor)
        assert newest.tensors[name].dtype == np.float32
    assert before <= newest.published_at <= time.monotonic()


def test_nothing_to_read_before_the_first_version_nor_twice(channel: WeightsChannel) -> None:
    reader = channel.reader()
    assert reader.newest() is None
    publish(channel.writer(), 1.0)
    assert reader.newest() is not None
    assert reader.newest() is None


def test_versions_rise_by_one(channel: WeightsChannel) -> None:
    writer = channel.writer()
    assert [publish(writer, 1.0) for _ in range(5)] == [1, 2, 3, 4, 5]


def test_reader_skips_to_the_newest(channel: WeightsChannel) -> None:
    writer, reader = channel.writer(), channel.reader()
    publish(writer, 1.0)
    assert reader.newest() is not None
    for value in range(2, 3 * KEPT_VERSIONS):
        publish(writer, value)
    newest = reader.newest()
    assert newest is not None
    assert newest.version == 3 * KEPT_VERSIONS - 1
    np.testing.assert_array_equal(newest.tensors["a"], np.full(3, newest.version, np.float32))
    assert reader.newest() is None


def test_each_reader_has_its_own_place(channel: WeightsChannel) -> None:
    writer, early, late = channel.writer(), channel.reader(), channel.reader()
    publish(writer, 1.0)
    assert early.newest() is not None
    publish(writer, 2.0)
    for reader in (early, late):
        newest = reader.newest()
        assert newest is not None
        assert newest.version == 2


def test_only_the_newest_files_are_kept_and_no_other(channel: WeightsChannel, tmp_path: Path) -> None:
    writer = channel.writer()
    for count in range(1, 3 * KEPT_VERSIONS):
        publish(writer, count)
        kept = range(max(1, count - KEPT_VERSIONS + 1), count + 1)
        # All files of the folder: the one that is written aside must be gone too.
        assert sorted(tmp_path.iterdir()) == [version_path(tmp_path, version) for version in kept]


class BusyFolder:
    """Stands for the folder to a reader: when it looks for a file there, many more versions have come meanwhile."""

    def __init__(self, folder: Path, writer: WeightsWriter) -> None:
        self._folder, self._writer = folder, writer
        self.versions_to_come = 2 * KEPT_VERSIONS

    def __truediv__(self, name: str) -> Path:
        for _ in range(self.versions_to_come):
            publish(self._writer, 0.0)
        self.versions_to_come = 0
        return self._folder / name


def test_reader_that_is_too_late_takes_the_newest_instead(channel: WeightsChannel, tmp_path: Path) -> None:
    writer = channel.writer()
    reader = channel.reader()
    reader._folder = BusyFolder(tmp_path, writer)  # type: ignore[assignment]
    publish(writer, 0.0)
    newest = reader.newest()
    assert newest is not None
    assert newest.version == 1 + 2 * KEPT_VERSIONS
    assert newest.metadata["version"] == str(newest.version)


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def _flip_a_number(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _flip_a_name(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"a"', b'"b"'))


def _leave_out_the_checksum(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"checksum"', b'"chekksum"'))


@pytest.mark.parametrize(
    "damage", [Path.unlink, _truncate, _flip_a_number, _flip_a_name, _leave_out_the_checksum, os.mkfifo]
)
def test_version_that_is_damaged_or_gone_is_skipped(
    channel: WeightsChannel, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    writer, reader = channel.writer(), channel.reader()
    publish(writer, 1.0)
    path = version_path(tmp_path, 1)
    if damage is os.mkfifo:
        path.unlink()
    damage(path)
    assert reader.newest() is None
    assert reader.newest() is None
    path.unlink(missing_ok=True)
    publish(writer, 2.0)
    newest = reader.newest()
    assert newest is not None
    assert newest.version == 2


@pytest.mark.parametrize(
    "tensors",
    [
        {"a": np.full(4, 1, np.float32)},
        {"a": np.full(3, 1, np.float32), "b": np.zeros(1, np.float32)},
        {"a": np.array([1, np.nan, 1], np.float32)},
        {"a": np.array([1, np.inf, 1], np.float32)},
    ],
)
def test_version_that_cannot_be_of_the_same_policy_is_refused(
    channel: WeightsChannel, tensors: dict[str, NDArray[np.float32]]
) -> None:
    writer, reader = channel.writer(), channel.reader()
    publish(writer, 1.0)
    assert reader.newest() is not None
    writer.publish(tensors, {})
    assert reader.newest() is None
    publish(writer, 2.0)
    assert reader.newest() is not None


def test_version_that_a_full_disk_does_not_take_is_not_announced(
    channel: WeightsChannel, tmp_path: Path, full_disk: FullDisk
) -> None:
    writer, reader = channel.writer(), channel.reader()
    publish(writer, 1.0)
    for file_bytes in (0, 100):
        with full_disk(file_bytes), pytest.raises(OSError, match="File too large"):
            publish(writer, 2.0)
    assert [path.name for path in tmp_path.iterdir()] == [version_path(tmp_path, 1).name]
    newest = reader.newest()
    assert newest is not None
    assert newest.version == 1
    assert publish(writer, 2.0) == 2


def test_folder_that_was_deleted_is_made_anew(tmp_path: Path) -> None:
    channel = WeightsChannel(tmp_path / "run" / "weights")
    writer, reader = channel.writer(), channel.reader()
    publish(writer, 1.0)
    shutil.rmtree(tmp_path / "run")
    assert publish(writer, 2.0) == 2
    newest = reader.newest()
    assert newest is not None
    assert newest.version == 2


def test_arrays_that_are_not_contiguous_survive(tmp_path: Path) -> None:
    square = np.arange(12, dtype=np.float32).reshape(3, 4)
    tensors = {"transposed": square.T, "strided": square[:, ::2], "reversed": square[::-1]}
    write_weights(tmp_path / "policy.safetensors", tensors, {})
    read, metadata = read_weights(tmp_path / "policy.safetensors")
    assert metadata == {}
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(read[name], tensor)


def test_files_are_those_of_the_library(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tensors = {f"{n}.weight": rng.standard_normal((n, 3)).astype(np.float32) for n in (2, 0, 5)}
    metadata = {"env": "Point-v0", "updates": "5"}
    path = tmp_path / "policy.safetensors"
    write_weights(path, tensors, metadata)
    with safetensors.safe_open(path, "numpy") as file:
        found = file.metadata()
        assert found.items() > metadata.items()
    # Its metadata has no order, so that only the length of the header is compared; then come the tensors.
    assert len(path.read_bytes()) == len(save(tensors, found))
    size = sum(tensor.nbytes for tensor in tensors.values())
    assert path.read_bytes()[-size:] == save(tensors, found)[-size:]


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"])
def test_every_type_comes_back(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    tensors = {"a": np.array([[0, 1], [1, 0]], kind), "b": np.arange(7, dtype=np.uint8), "c": np.ones(3, np.float32)}
    write_weights(path, tensors, {"env": "Größe-v0"})
    assert read_weights(path)[1] == {"env": "Größe-v0"}
    for read in (load_file(path), read_weights(path)[0]):
        assert {name: array.dtype for name, array in read.items()} == {
            name: array.dtype for name, array in tensors.items()
        }
        for name, array in tensors.items():
            np.testing.assert_array_equal(read[name], array)


def test_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    write_weights(path, {"a": np.ones(3, np.float32)}, {})
    unwritable = {"a": np.array([None])}
    with pytest.raises(TypeError):
        write_weights(path, unwritable, {})
    np.testing.assert_array_equal(read_weights(path)[0]["a"], np.ones(3))
    assert list(tmp_path.iterdir()) == [path]


def test_reader_never_sees_half_a_file_nor_an_older_version(channel: WeightsChannel, tmp_path: Path) -> None:
    def start(program: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=channel.descriptors,
        )
        assert process.stdin is not None
        process.stdin.write(pickle.dumps((channel, VERSIONS)))
        process.stdin.flush()
        return process

    reader, writer = start(READER_PROGRAM), start(WRITER_PROGRAM)
    try:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"seen\n"
        writer.communicate(b"!", GUARD_S)  # from here on both run at once
        report = json.loads(reader.communicate(timeout=GUARD_S)[0])
    finally:
        for process in (reader, writer):
            process.kill()
            process.wait()
    assert writer.returncode == reader.returncode == 0
    assert report["faults"] == []
    assert report["files"] > 0
    assert report["seen"] == sorted(set(report["seen"]))
    assert report["seen"][0] == 1
    assert report["seen"][-1] == VERSIONS
    assert len(list(tmp_path.iterdir())) == KEPT_VERSIONS


def test_versions_of_another_machine_are_taken_over_also_where_its_learner_goes_back(
    channel: WeightsChannel, tmp_path: Path
) -> None:
    here, writer = WeightsChannel(tmp_path / "here" / "weights"), channel.writer()
    reader = here.reader()
    for value in range(1, KEPT_VERSIONS + 4):
        version = publish(writer, float(value))
        here.take_over(version, version_path(channel.folder, version).read_bytes())
    newest = reader.newest()
    assert newest is not None
    assert newest.version == version
    assert len(list(here.folder.iterdir())) == KEPT_VERSIONS
    content = version_path(channel.folder, version).read_bytes()
    here.take_over(2, content)  # earlier than all that are there
    again = reader.newest()
    assert again is not None
    assert again.version == 2
    assert [path.name for path in here.folder.iterdir()] == [version_path(here.folder, 2).name]
