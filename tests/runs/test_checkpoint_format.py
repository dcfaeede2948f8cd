from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spreeze.errors import CheckpointError
from spreeze.runs.checkpoint_format import (
    Manifest,
    describe,
    newest_checkpoints,
    oldest_row_needed,
    read_manifest,
    state_path,
    verify_states,
    write_manifest,
)
from spreeze.runs.replay_log import Extent, verify

WIDTH = 64


def make(folder: Path, number: int, content: bytes = b"state") -> Manifest:
    path = state_path(folder, number, "all")
    path.write_bytes(content)
    manifest = Manifest(number, (describe(path),), (Extent(number, 2, 3),), WIDTH, {"updates": number}, {"best": 1.5})
    write_manifest(folder, manifest)
    return manifest


def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    manifest = make(tmp_path, 1)
    assert newest_checkpoints(tmp_path) == [manifest]
    verify_states(tmp_path, manifest)


def test_two_are_kept_and_the_rest_is_deleted(tmp_path: Path) -> None:
    made = [make(tmp_path, number) for number in (1, 2, 3)]
    state_path(tmp_path, 4, "all").write_bytes(b"being written")
    make(tmp_path, 5)
    found = newest_checkpoints(tmp_path)
    assert [manifest.number for manifest in found] == [5, 3]
    assert {path.name for path in tmp_path.iterdir()} == {
        *("manifest-000003.json", "manifest-000005.json"),
        *("state-all-000003.safetensors", "state-all-000005.safetensors"),
    }
    assert found[1] == made[2]
    assert oldest_row_needed(found) == 3


def test_a_damaged_manifest_gives_way_to_the_one_before(tmp_path: Path) -> None:
    make(tmp_path, 1)
    make(tmp_path, 2)
    path = tmp_path / "manifest-000002.json"
    path.write_bytes(path.read_bytes()[:-1])
    assert [manifest.number for manifest in newest_checkpoints(tmp_path)] == [1]


@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing"])
def test_a_damaged_state_is_found(tmp_path: Path, damage: str) -> None:
    manifest = make(tmp_path, 1)
    path = state_path(tmp_path, 1, "all")
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(b"stat" if damage == "truncated" else b"stale")
    with pytest.raises(CheckpointError, match="state-all-000001"):
        verify_states(tmp_path, manifest)


def sign(content: bytes) -> bytes:
    return b"%08x\n" % zlib.crc32(content) + content


VALID = {"format": 1, "number": 1, "states": [], "extents": [], "row_width": 3, "counters": {}, "progress": {}}


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"number": -1},
        {"number": True},
        {"states": [{"name": "../../etc/passwd", "byte_count": 1, "checksum": 1}]},
        {"states": [{"name": "/etc/passwd", "byte_count": 1, "checksum": 1}]},
        {"states": [{"name": ".hidden", "byte_count": 1, "checksum": 1}]},
        {"extents": [[1, 2]]},
        {"extents": [["1", 2, 3]]},
        {"extents": 3},
        {"counters": []},
        {"progress": 3},
        {"row_width": None},
        {"row_width": 0, "extents": [[0, 1, 1]]},
        {"row_width": 1 << 40},
        {"row_width": 10**30},
        {"extents": [[0, 10, 1], [9, 10, 1]]},
        {"extents": [[10, 10, 1], [0, 10, 1]]},
        {"extents": [[0, 10, 1], [0, 10, 1]]},
        {"extents": [[0, 1 << 40, 1]]},
        {"extents": [[1 << 60, 1, 1]]},
        {"extents": [[-1, 1, 1]]},
        {"states": [{"name": "state", "byte_count": 1 << 50, "checksum": 1}]},
        {"states": [{"name": f"state-{i}", "byte_count": 1, "checksum": 1} for i in range(4)]},
        {"states": [{"name": "s" * 256, "byte_count": 1, "checksum": 1}]},
        {"counters": {"updates": "5"}},
        {"counters": {"updates": float("nan")}},
        {"counters": {"updates": -1}},
        {"counters": {"updates": 10**30}},
    ],
)
def test_a_signed_manifest_with_something_else_in_it_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "manifest-000001.json"
    path.write_bytes(sign(json.dumps({**VALID, **change}).encode()))
    with pytest.raises(CheckpointError):
        read_manifest(path)


def test_a_pipe_in_the_place_of_a_state_keeps_nobody_waiting(tmp_path: Path) -> None:
    manifest = make(tmp_path, 1, b"")
    path = state_path(tmp_path, 1, "all")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(CheckpointError, match="not a regular file"):
        verify_states(tmp_path, manifest)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200), at=st.integers(0, 150), signed=st.booleans())
def test_whatever_a_manifest_holds_the_error_is_ours(tmp_path: Path, content: bytes, at: int, signed: bool) -> None:
    good = json.dumps(VALID).encode()
    mixed = good[:at] + content + good[at + len(content) :]
    path = tmp_path / "manifest-000001.json"
    path.write_bytes(sign(mixed) if signed else mixed)
    try:
        manifest = read_manifest(path)
    except CheckpointError:
        return
    assert manifest.row_width >= 0


WRITER = """
import sys
from pathlib import Path
import numpy as np
from spreeze.runs import replay_log
from spreeze.runs.checkpoint_format import Manifest, describe, newest_checkpoints
from spreeze.runs.checkpoint_format import oldest_row_needed, state_path, write_manifest
from spreeze.runs.replay_log import ReplayLog

replay_log.FILE_BYTES = 1 << 15
folder, width = Path(sys.argv[1]), int(sys.argv[2])
kept = newest_checkpoints(folder)
log = ReplayLog(folder / "replay", width, [extent for manifest in kept for extent in manifest.extents])
number = kept[0].number if kept else 0
print("ready", flush=True)
while True:
    number += 1
    row = log.next_row
    log.append(row, np.repeat(np.arange(row, row + 200, dtype=np.float32)[:, None], width, axis=1))
    log.sync()
    state_path(folder, number, "all").write_bytes(bytes(number % 256 for _ in range(5000)))
    state = describe(state_path(folder, number, "all"))
    extents = log.extents(log.next_row - 2000)
    kept = [Manifest(number, (state,), extents, width, {"rows": log.next_row}), *kept][:2]
    write_manifest(folder, kept[0])
    log.forget(oldest_row_needed(kept))
"""


def test_a_kill_at_any_moment_leaves_a_valid_checkpoint(tmp_path: Path, in_full: bool) -> None:
    rng = random.Random(0)
    rows = 0
    for _ in range(25 if in_full else 8):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), str(WIDTH)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        before = max((manifest.number for manifest in newest_checkpoints(tmp_path)), default=0)
        target = before + rng.randrange(1, 4)
        while max((manifest.number for manifest in newest_checkpoints(tmp_path)), default=0) < target:
            assert process.poll() is None
        for _ in range(rng.randrange(2000)):  # some moment in the middle of the next one
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        found = newest_checkpoints(tmp_path)
        assert found[0].number >= target
        for manifest in found:
            verify_states(tmp_path, manifest)
            verify(tmp_path / "replay", manifest.extents, WIDTH)
        last = found[0].extents[-1]
        assert last.first_row + last.rows == found[0].counters["rows"] > rows
        rows = int(found[0].counters["rows"])
