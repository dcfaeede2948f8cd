from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spreeze.runs.journal_writer import JournalWriter, cut_half_line, thin

if TYPE_CHECKING:
    from conftest import FullDisk


def line(number: int) -> bytes:
    return json.dumps({"wall_s": number, "x": "y" * 40}).encode() + b"\n"


def numbers(path: Path) -> list[int]:
    content = path.read_bytes()
    assert not content or content.endswith(b"\n")
    return [json.loads(one)["wall_s"] for one in content.splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


@pytest.mark.parametrize("room", [0, 1, 30, len(line(0)), len(line(0)) + 1])
def test_what_a_full_disk_does_not_take_is_written_later_and_whole(
    path: Path, full_disk: FullDisk, room: int
) -> None:
    writer = JournalWriter(path, 1 << 20)
    writer.add(line(0))
    writer.write()
    with full_disk(path.stat().st_size + room):
        for number in (1, 2, 3):
            writer.add(line(number))
        for _ in range(3):
            with pytest.raises(OSError, match=r"No space|too large"):
                writer.write()
            assert numbers(path) == list(range(1 + room // len(line(0))))  # no part of a line
    assert writer.waiting == 3 - room // len(line(0))
    writer.write()
    assert numbers(path) == [0, 1, 2, 3]
    assert writer.waiting == 0


def test_the_oldest_are_dropped_when_too_many_wait(path: Path) -> None:
    writer = JournalWriter(path, 10 * len(line(100)))
    for number in range(100, 130):
        writer.add(line(number))
    assert (writer.waiting, writer.lost) == (10, 20)
    writer.write()
    assert numbers(path) == list(range(120, 130))


def test_a_half_line_that_somebody_left_is_cut_off(path: Path) -> None:
    path.write_bytes(line(1) + line(2)[:-5])
    writer = JournalWriter(path, 1 << 20)
    writer.add(line(3))
    writer.write()
    assert numbers(path) == [1, 3]


@pytest.mark.parametrize("length", [1, 65_535, 65_536, 65_537, 200_000])
@pytest.mark.parametrize("before", [b"", b"{}\n"])
def test_a_half_line_of_any_length_is_cut_off(path: Path, before: bytes, length: int) -> None:
    path.write_bytes(before + b"x" * length)
    fd = os.open(path, os.O_RDWR)
    assert cut_half_line(fd) == len(before)
    os.close(fd)
    assert path.read_bytes() == before


def test_a_journal_stays_bounded_and_its_curve_whole(path: Path) -> None:
    most_bytes, count = 100 * len(line(1000)), 5000
    writer = JournalWriter(path, 1 << 20, most_bytes)
    for number in range(1000, 1000 + count):
        writer.add(line(number))
        writer.write()
        assert path.stat().st_size <= most_bytes + len(line(1000))
    found = numbers(path)
    assert found == sorted(set(found))
    assert found[0] == 1000  # the oldest is there still
    assert found[-40:] == list(range(1000 + count - 40, 1000 + count))  # and the newest one and all
    gaps = [after - before for before, after in pairwise(found)]
    assert max(gaps) < count / 4
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_full_disk_leaves_a_journal_as_it_is_instead_of_thinning_it(path: Path, full_disk: FullDisk) -> None:
    path.write_bytes(b"".join(line(number) for number in range(100)))
    with full_disk(10), pytest.raises(OSError, match="too large"):
        thin(path)
    assert numbers(path) == list(range(100))
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    thin(path)
    assert numbers(path) == [*range(0, 50, 2), *range(50, 100)]


def test_lines_without_a_time_do_not_keep_a_journal_from_being_written(path: Path) -> None:
    writer = JournalWriter(path, 1 << 20, 1000)
    for _ in range(500):
        writer.add(b'{"x": 1}\n')
        writer.write()
    assert path.read_bytes().replace(b'{"x": 1}\n', b"") == b""
