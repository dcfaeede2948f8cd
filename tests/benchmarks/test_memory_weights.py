"""Weights through shared memory, for comparison: no half version, no number twice, files for the user."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from weights_promises import *  # noqa: F403 (what a channel promises, as tests of the fixture `channel`)
from weights_promises import GUARD_S, ROOM_BYTES, VERSIONS, line_of, publish, start

from spreeze.channels.weights import KEPT_VERSIONS, read_weights, version_path

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from conftest import FullDisk, Running, Spreeze

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

from ablation.memory_weights import FILE_EVERY, MemoryWeightsChannel, WeightBlock  # noqa: E402

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


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[MemoryWeightsChannel]:
    made = make(tmp_path)
    yield made
    made.close()


@pytest.fixture
def shared(channel: MemoryWeightsChannel) -> MemoryWeightsChannel:
    return channel


def make(folder: Path) -> MemoryWeightsChannel:
    channel = MemoryWeightsChannel(folder)
    channel.allocate(ROOM_BYTES)
    return channel


def files(folder: Path) -> list[int]:
    return sorted(int(path.stem.partition("-")[2]) for path in folder.iterdir())


def test_half_a_version_is_not_read(shared: MemoryWeightsChannel) -> None:
    publish(shared, range(1, 4))
    block = shared.block
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


def test_the_first_every_eighth_and_the_last_version_have_files(shared: MemoryWeightsChannel, tmp_path: Path) -> None:
    writer = shared.writer()
    for value in range(1, 2 * FILE_EVERY + 4):
        writer.publish({"a": np.full(3, value, np.float32)}, {})
    assert files(tmp_path) == [1, 1 + FILE_EVERY, 1 + 2 * FILE_EVERY]
    writer.close()
    last = 2 * FILE_EVERY + 3
    assert files(tmp_path)[-1] == last
    tensors, metadata = read_weights(version_path(tmp_path, last), must_have_checksum=True)
    assert (tensors["a"][0], metadata["version"]) == (last, str(last))


def test_old_files_are_deleted(shared: MemoryWeightsChannel, tmp_path: Path) -> None:
    publish(shared, range(KEPT_VERSIONS * FILE_EVERY + 5))
    kept = files(tmp_path)
    assert len(kept) == KEPT_VERSIONS
    assert kept[-1] == 1 + KEPT_VERSIONS * FILE_EVERY


def test_a_later_session_begins_with_the_newest_file_and_repeats_no_number(
    shared: MemoryWeightsChannel, tmp_path: Path
) -> None:
    published = publish(shared, range(FILE_EVERY))  # all but the first have no file, as after a kill
    later = make(tmp_path)
    later.resume_from_newest()
    newest = later.reader().newest()
    assert newest is not None
    assert (newest.version, newest.tensors["a"][0]) == (1, 0.0)
    first, second = publish(later, range(2))
    assert first > published[-1]
    assert second == first + 1
    later.close()


def test_a_full_disk_keeps_no_version_from_its_readers(
    shared: MemoryWeightsChannel, tmp_path: Path, full_disk: FullDisk
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


def test_a_policy_that_is_larger_than_planned_is_refused(shared: MemoryWeightsChannel) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        shared.writer().publish({"a": np.zeros(1 << 20, np.float32)}, {})
    assert shared.reader().newest() is None


# --- in a run ---------------------------------------------------------------------------------------------------


def launch(spreeze: Spreeze, transport: str, **settings: Any) -> Running:
    """Start a small training with a transport of the benchmarks."""
    program = (BENCHMARKS / "ablation" / "launch.py", spreeze.folder / "cache", 0, "", transport)
    return spreeze.start_python(*program, "train", "Toy/Point-v0", *spreeze.small(**settings))


def versions(spreeze: Spreeze) -> list[int]:
    return [line["version"] for line in spreeze.journal("evaluations")]


@pytest.mark.full
def test_versions_rise_beyond_a_killed_learner_and_into_the_next_session(spreeze: Spreeze) -> None:
    run = launch(spreeze, "memory", checkpoint_interval_s=0.2)
    checkpoints = spreeze.run_dir / "checkpoint"
    spreeze.wait_until(lambda: list(checkpoints.glob("manifest-*")), "a checkpoint", run=run)
    spreeze.wait_until(lambda: versions(spreeze), "an evaluation", run=run)
    (learner,) = spreeze.processes("learner")
    learner.kill()
    spreeze.wait_until(lambda: [e for e in spreeze.journal("events") if e["kind"] == "warning"], "a warning", run=run)
    before = len(versions(spreeze))
    spreeze.wait_until(lambda: len(versions(spreeze)) > before + 1, "evaluations of the new learner's", run=run)
    run.process.terminate()
    assert run.finish().returncode == 130
    updates = spreeze.read("summary.json")["updates"]
    session = versions(spreeze)
    last = max(int(path.stem.partition("-")[2]) for path in (spreeze.run_dir / "weights").glob("policy-*"))
    assert last >= session[-1]  # the policy at the end is the user's

    finished = spreeze("resume", "run", "--max-updates", updates + 50)

    assert finished.returncode == 0, finished.stderr
    assert versions(spreeze)[: len(session)] == session
    assert versions(spreeze) == sorted(set(versions(spreeze)))
    newest = max(int(path.stem.partition("-")[2]) for path in (spreeze.run_dir / "weights").glob("policy-*"))
    assert newest > last
