from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spreeze.host.files import open_regular, read_bounded, write_together, write_whole

if TYPE_CHECKING:
    from conftest import FullDisk


@pytest.mark.parametrize("file_bytes", [0, 5, 50])
def test_what_a_full_disk_cannot_take_changes_nothing(tmp_path: Path, full_disk: FullDisk, file_bytes: int) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    write_together({one: b"old", two: b"old"}, tmp_path)
    with full_disk(file_bytes), pytest.raises(OSError, match="File too large"):
        write_together({one: b"new", two: b"new" * 100}, tmp_path)
    assert (one.read_bytes(), two.read_bytes()) == (b"old", b"old")
    assert sorted(tmp_path.iterdir()) == [one, two]
    write_together({one: b"new", two: b"newer"}, tmp_path, sync=True)
    assert (one.read_bytes(), two.read_bytes()) == (b"new", b"newer")


def test_a_file_is_read_up_to_a_size(tmp_path: Path) -> None:
    write_whole(tmp_path / "file", b"12345", tmp_path)
    assert read_bounded(tmp_path / "file", 5, tmp_path) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_bounded(tmp_path / "file", 4, tmp_path)
    os.truncate(tmp_path / "file", 1 << 40)  # takes no room on the disk, and would take all memory
    with pytest.raises(OSError, match="more than 5 bytes"):
        read_bounded(tmp_path / "file", 5, tmp_path)


def test_pipes_devices_and_folders_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match="not a regular file") as raised:
            open_regular(path, None)
        assert raised.value.errno == errno.EINVAL
