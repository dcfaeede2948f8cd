"""Files from strangers and from failing disks: used or refused in one line, with little memory and no pickle."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest

import spreeze
from spreeze.errors import RunFolderError
from spreeze.runs.checkpoint_format import read_manifest
from spreeze.runs.folder_check import FILES

if TYPE_CHECKING:
    from conftest import Spreeze

# Of all kinds together, in one process or in each of two: seconds, or some minutes.
QUICK, FULL = (360,), (50_000, 50_000)


def test_damaged_files_are_used_or_refused_in_one_line(tmp_path: Path, in_full: bool) -> None:
    programs = []
    for seed, count in enumerate(FULL if in_full else QUICK):
        (tmp_path / str(seed)).mkdir()
        words = [Path(__file__).parent / "damage.py", tmp_path / str(seed), str(seed), str(count)]
        programs.append(subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    ends = [(program.communicate(), program.returncode) for program in programs]
    for (said, errors), code in ends:
        assert code == 0, errors.decode()[-3000:]
        report = json.loads(said.splitlines()[-1])
        assert report["failed"] == 0, "\n".join(report["failures"])
        for kind in ("config", "best policy", "weights", "manifest", "serial state", "rows"):
            # Damage that nobody notices would test nothing.
            assert report["refused"][kind] > 0.2 * report["tried"][kind], report
        for folder, patterns in FILES.items():
            for pattern in patterns:
                place = (PurePosixPath(folder) / pattern).as_posix()
                assert any(fnmatchcase(one, place) for one in report["places"]), f"no {place} was damaged"


class Trap:
    """Runs a command when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self._marker}",)


def _header(fields: dict[str, Any], data_bytes: int) -> bytes:
    text = json.dumps(fields).encode()
    return struct.pack("<Q", len(text)) + text + bytes(data_bytes)


def _claims(shape: list[int], end: int, data_bytes: int) -> bytes:
    return _header({"actor.0.weight": {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}}, data_bytes)


HUGE = 100 << 30
HOSTILE: dict[str, bytes] = {
    "claims 100 GB": _claims([HUGE // 4], HUGE, 64),
    "claims 100 GB in 64 bytes": _claims([HUGE // 4], 64, 64),
    "claims a negative size": _claims([-4], 16, 16),
    "claims what wraps around": _claims([2**32, 2**32], 0, 0),
    "header of 16 EB": b"\xff" * 8 + b"{}",
    "header of 100 MB": struct.pack("<Q", 100_000_000) + b" " * 100,
    "header of blanks": struct.pack("<Q", 2_000_000) + b" " * 2_000_000,
    "nested": struct.pack("<Q", 200_000) + b"[" * 200_000,
    "nothing": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_policy_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "policy.safetensors"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(RunFolderError, match=r"policy\.safetensors is not a Spreeze policy, or is damaged") as raised:
        spreeze.load_policy(path)
    assert "\n" not in str(raised.value)


def test_a_policy_as_large_as_it_claims_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    path.write_bytes(_claims([HUGE // 4], HUGE, 0))
    os.truncate(path, path.stat().st_size + HUGE)  # a hole, which takes no room on the disk
    with pytest.raises(RunFolderError, match="more than"):
        spreeze.load_policy(path)


def test_no_loader_runs_what_a_file_holds(tmp_path: Path) -> None:
    marker = tmp_path / "trapped"
    trap = pickle.dumps(Trap(marker))
    for name in ("policy.safetensors", "manifest-000001.json", "config.json"):
        (tmp_path / name).write_bytes(trap)
    with pytest.raises(RunFolderError):
        spreeze.load_policy(tmp_path / "policy.safetensors")
    with pytest.raises(spreeze.errors.CheckpointError):
        read_manifest(tmp_path / "manifest-000001.json")
    from spreeze.runs.run_folder import read_run_config

    with pytest.raises(RunFolderError):
        read_run_config(tmp_path)
    assert not marker.exists()


@pytest.mark.parametrize("command", ["evaluate", "watch", "export"])
def test_commands_refuse_a_hostile_file_in_one_line(spreeze: Spreeze, command: str) -> None:
    (spreeze.folder / "run" / "best").mkdir(parents=True)
    (spreeze.folder / "run" / "config.json").write_text('{"env": "Toy/Point-v0"}')
    (spreeze.folder / "run" / "best" / "policy.safetensors").write_bytes(HOSTILE["claims 100 GB"])
    words = ("run", "--out", "policy.safetensors") if command == "export" else ("run",)
    finished = spreeze.start(command, *words, environment=spreeze.without()).finish()
    assert finished.returncode == 2
    (line,) = finished.stderr.splitlines()
    assert line.startswith("spreeze: run/best/policy.safetensors is not a Spreeze policy, or is damaged: ")
