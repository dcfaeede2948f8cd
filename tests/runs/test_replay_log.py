from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spreeze.errors import CheckpointError
from spreeze.runs import replay_log
from spreeze.runs.replay_log import Extent, ReplayLog, Rows, path_of, read_rows, verify

WIDTH = 3


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_log, "FILE_BYTES", 10 * 4 * WIDTH)
    monkeypatch.setattr(replay_log, "READ_BYTES", 4 * 4 * WIDTH)


def rows(first: int, count: int) -> Rows:
    """Rows that say which they are."""
    return np.repeat(np.arange(first, first + count, dtype=np.float32)[:, None], WIDTH, axis=1)


def numbers(folder: Path, extents: tuple[Extent, ...]) -> list[int]:
    found = [(first + i, row) for first, block in read_rows(folder, extents, WIDTH) for i, row in enumerate(block)]
    assert all((row == number).all() for number, row in found)
    return [number for number, _ in found]


# Blocks of rows, each some rows after the last one: a gap or none.
blocks = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40)), max_size=12)


@settings(deadline=None, max_examples=60)
@given(blocks=blocks, forget=st.integers(0, 300))
def test_what_is_read_is_what_was_appended(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[tuple[int, int]], forget: int
) -> None:
    folder = tmp_path_factory.mktemp("replay")
    log = ReplayLog(folder, WIDTH)
    model: list[int] = []
    at = 0
    for gap, count in blocks:
        at += gap
        log.append(at, rows(at, count))
        model += range(at, at + count)
        at += count
    assert log.next_row == at - (0 if model and model[-1] == at - 1 else at)
    assert numbers(folder, log.extents()) == model
    log.forget(forget)
    left = numbers(folder, log.extents())
    assert left == model[len(model) - len(left) :]
    assert [number for number in model if number >= forget] == [number for number in left if number >= forget]
    assert sum(path.stat().st_size for path in folder.iterdir()) == log.byte_count == len(left) * 4 * WIDTH


def test_an_earlier_checkpoint_stays_valid_while_the_next_is_written(tmp_path: Path) -> None:
    log = ReplayLog(tmp_path, WIDTH)
    log.append(0, rows(0, 14))
    before = log.extents()
    log.append(14, rows(14, 30))
    assert numbers(tmp_path, before) == list(range(14))
    assert numbers(tmp_path, log.extents()) == list(range(44))


def test_what_a_checkpoint_that_never_was_has_left_is_cut_off(tmp_path: Path) -> None:
    log = ReplayLog(tmp_path, WIDTH)
    log.append(0, rows(0, 14))
    kept = log.extents()
    log.append(14, rows(100, 30))
    again = ReplayLog(tmp_path, WIDTH, kept)
    again.append(14, rows(14, 5))
    assert numbers(tmp_path, again.extents()) == list(range(19))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 19 * 4 * WIDTH


def test_a_row_is_never_appended_twice(tmp_path: Path) -> None:
    log = ReplayLog(tmp_path, WIDTH)
    log.append(0, rows(0, 5))
    with pytest.raises(ValueError, match="row 4"):
        log.append(4, rows(4, 1))


@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing"])
def test_damage_is_found(tmp_path: Path, damage: str) -> None:
    log = ReplayLog(tmp_path, WIDTH)
    log.append(0, rows(0, 25))
    verify(tmp_path, log.extents(), WIDTH)
    path = path_of(tmp_path, 10)
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(content[:-1])
    else:
        content[57] ^= 1
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match="rows-000000000000010"):
        verify(tmp_path, log.extents(), WIDTH)


def test_a_write_that_failed_is_made_good_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = ReplayLog(tmp_path, WIDTH)
    log.append(0, rows(0, 4))
    real = replay_log.os.pwrite
    monkeypatch.setattr(replay_log.os, "pwrite", lambda fd, view, offset: _half_then_full(real, fd, view, offset))
    with pytest.raises(OSError, match="No space"):
        log.append(4, rows(50, 4))
    monkeypatch.undo()
    assert log.next_row == 4
    log.append(4, rows(4, 4))
    assert numbers(tmp_path, log.extents()) == list(range(8))


def _half_then_full(real: object, fd: int, view: memoryview, offset: int) -> int:
    import errno

    real(fd, view[: len(view) // 2], offset)  # type: ignore[operator]
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("extents", "width"),
    [
        ([Extent(0, 5, 0)], 0),
        ([Extent(0, 5, 0)], 1 << 40),
        ([Extent(0, 1 << 50, 0)], WIDTH),
        ([Extent(0, 10, 0), Extent(9, 10, 0)], WIDTH),
        ([Extent(-5, 5, 0)], WIDTH),
        ([Extent(1 << 60, 5, 0)], WIDTH),
    ],
)
def test_extents_that_no_log_makes_are_refused(tmp_path: Path, extents: list[Extent], width: int) -> None:
    ReplayLog(tmp_path, WIDTH).append(0, rows(0, 25))
    with pytest.raises(CheckpointError, match="its checkpoint says"):
        verify(tmp_path, extents, width)


def test_a_file_that_is_too_short_is_not_made_longer(tmp_path: Path) -> None:
    log = ReplayLog(tmp_path, WIDTH)
    log.append(0, rows(0, 8))
    path_of(tmp_path, 0).write_bytes(b"1234")
    ReplayLog(tmp_path, WIDTH, log.extents())
    assert path_of(tmp_path, 0).read_bytes() == b"1234"


def test_a_file_that_could_not_be_written_belongs_to_no_checkpoint(tmp_path: Path) -> None:
    log = ReplayLog(tmp_path, WIDTH)
    log.append(0, rows(0, 10))
    path_of(tmp_path, 10).mkdir()
    with pytest.raises(IsADirectoryError):
        log.append(10, rows(10, 10))
    assert numbers(tmp_path, log.extents()) == list(range(10))
    path_of(tmp_path, 10).rmdir()
    log.append(10, rows(10, 10))
    assert numbers(tmp_path, log.extents()) == list(range(20))
