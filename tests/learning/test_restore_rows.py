"""Of a damaged replay all rows come back that are intact, and what is lost is counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from spreeze.channels.transitions import RowLayout, Rows
from spreeze.errors import CheckpointError
from spreeze.learning.replay import Replay
from spreeze.learning.restore_rows import RestoredRows, leave_rows_out, restore_rows
from spreeze.runs import replay_log
from spreeze.runs.checkpoint_format import Manifest
from spreeze.runs.replay_log import ReplayLog, path_of

LAYOUT = RowLayout(3, 2)
FILE_ROWS, CAPACITY = 100, 500


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_log, "FILE_BYTES", FILE_ROWS * 4 * LAYOUT.width)
    monkeypatch.setattr(replay_log, "READ_BYTES", 30 * 4 * LAYOUT.width)


def rows(first: int, count: int) -> Rows:
    """Rows that say which they are."""
    return np.repeat(np.arange(first, first + count, dtype=np.float32)[:, None], LAYOUT.width, axis=1)


def manifest_of(log: ReplayLog, number: int = 1) -> Manifest:
    extents = log.extents(log.next_row - CAPACITY)
    return Manifest(number, (), extents, LAYOUT.width, {"replay_written": log.next_row})


def saved(folder: Path, count: int) -> Manifest:
    log = ReplayLog(folder / "replay", LAYOUT.width)
    log.append(0, rows(0, count))
    return manifest_of(log)


def restored(folder: Path, *kept: Manifest) -> tuple[Replay, RestoredRows]:
    replay = Replay(LAYOUT, CAPACITY, torch.device("cpu"))
    return replay, restore_rows(folder, kept, replay, lambda: None)


def numbers(replay: Replay) -> list[int]:
    """Which rows can be drawn, each of them whole."""
    held = replay._rows[: len(replay)].numpy()
    assert (held == held[:, :1]).all()
    assert int(replay._count) == len(replay)
    return sorted(int(number) for number in held[:, 0])


def damage(folder: Path, first_row: int, how: str, at_row: int = 57) -> None:
    path = path_of(folder / "replay", first_row)
    content, at = bytearray(path.read_bytes()), at_row * 4 * LAYOUT.width
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(content[:at])
    else:
        content[at] ^= 1
        path.write_bytes(content)


@pytest.mark.parametrize("count", [270, 700, 745])
def test_rows_that_are_whole_come_back_to_their_places(tmp_path: Path, count: int) -> None:
    before = Replay(LAYOUT, CAPACITY, torch.device("cpu"))
    before.add(rows(0, count))
    replay, found = restored(tmp_path, saved(tmp_path, count))
    assert torch.equal(replay._rows[: len(replay)], before._rows[: len(before)])
    assert (replay.written, replay.first_row) == (count, 0)
    assert (found.missing, found.left_out, found.damage) == (0, 0, "")


@pytest.mark.parametrize("how", ["flipped", "truncated", "missing"])
@pytest.mark.parametrize("first_row", [200, 400, 600])
def test_a_damaged_file_costs_its_own_rows(tmp_path: Path, how: str, first_row: int) -> None:
    manifest = saved(tmp_path, 650)
    damage(tmp_path, first_row, how, at_row=20)
    replay, found = restored(tmp_path, manifest)
    lost = set(range(first_row, min(650, first_row + FILE_ROWS)))
    # The first file began before the oldest row that the replay held: what is there is used.
    assert numbers(replay) == sorted(set(range(100, 650)) - lost)[-CAPACITY:]
    assert found.left_out == found.missing == len(lost)
    assert f"rows-{first_row:015d}" in found.damage
    assert first_row not in {extent.first_row for extent in found.extents}
    assert replay.written == 650


def test_what_an_earlier_checkpoint_has_a_checksum_of_is_saved(tmp_path: Path) -> None:
    log = ReplayLog(tmp_path / "replay", LAYOUT.width)
    log.append(0, rows(0, 240))
    earlier = manifest_of(log)
    log.append(240, rows(240, 50))
    newest = manifest_of(log, 2)
    damage(tmp_path, 200, "flipped", at_row=60)
    replay, found = restored(tmp_path, newest, earlier)
    assert numbers(replay) == list(range(240))
    assert (found.left_out, replay.written) == (50, 290)
    assert [(extent.first_row, extent.rows) for extent in found.extents] == [(0, 100), (100, 100), (200, 40)]
    # Without it, the file is lost.
    replay, found = restored(tmp_path, newest)
    assert numbers(replay) == list(range(200))
    assert found.left_out == 90


def test_where_every_file_is_damaged_the_replay_is_empty(tmp_path: Path) -> None:
    manifest = saved(tmp_path, 250)
    for first_row, how in ((0, "flipped"), (100, "truncated"), (200, "missing")):
        damage(tmp_path, first_row, how, at_row=3)
    replay, found = restored(tmp_path, manifest)
    assert (numbers(replay), replay.written) == ([], 250)
    assert (found.left_out, found.missing, found.extents) == (250, 250, ())


def test_new_rows_go_on_after_a_damaged_replay(tmp_path: Path) -> None:
    manifest = saved(tmp_path, 450)
    damage(tmp_path, 100, "flipped")
    replay, found = restored(tmp_path, manifest)
    log = ReplayLog(tmp_path / "replay", LAYOUT.width, found.extents)
    replay.add(rows(450, 30))
    block = torch.empty(30, LAYOUT.width)
    assert replay.copy_out(450, block) == 0
    assert block[:, 0].tolist() == list(range(450, 480))
    log.append(450, block.numpy())
    again, found = restored(tmp_path, manifest_of(log, 2))
    assert numbers(again) == numbers(replay) == sorted({*range(480)} - {*range(100, 200)})
    assert (again.written, found.left_out) == (480, 0)  # it was told, and is not told again
    # Once the replay is full, the newest rows are in it and the oldest are not.
    again.add(rows(480, 300))
    assert numbers(again) == list(range(280, 780))
    assert again.copy_out(280, block) == 0
    assert block[0, 0] == 280


def test_a_gap_of_rows_that_were_overwritten_while_they_were_saved_is_no_damage(tmp_path: Path) -> None:
    log = ReplayLog(tmp_path / "replay", LAYOUT.width)
    log.append(0, rows(0, 100))
    log.append(160, rows(160, 100))
    replay, found = restored(tmp_path, manifest_of(log))
    assert numbers(replay) == [*range(100), *range(160, 260)]
    assert (found.left_out, found.missing, replay.written) == (0, 60, 260)


def test_rows_that_are_left_out_on_purpose_stay_on_disk_for_earlier_checkpoints(tmp_path: Path) -> None:
    manifest = saved(tmp_path, 250)
    replay = Replay(LAYOUT, CAPACITY, torch.device("cpu"))
    found = leave_rows_out([manifest], replay)
    log = ReplayLog(tmp_path / "replay", LAYOUT.width, found.extents, found.others)
    replay.add(rows(250, 20))
    assert (numbers(replay), replay.written) == (list(range(250, 270)), 270)
    log.append(250, rows(250, 20))
    assert [(extent.first_row, extent.rows) for extent in log.extents()] == [(250, 20)]
    assert restored(tmp_path, manifest)[1].left_out == 0
    # Nor are they in the checkpoints of later sessions, while this one is kept.
    newest = manifest_of(log, 2)
    replay, found = restored(tmp_path, newest, manifest)
    assert (numbers(replay), found.missing) == (list(range(250, 270)), 250)
    log = ReplayLog(tmp_path / "replay", LAYOUT.width, found.extents, found.others)
    log.append(270, rows(270, 5))
    assert [(extent.first_row, extent.rows) for extent in log.extents()] == [(250, 25)]
    assert restored(tmp_path, manifest)[1].left_out == 0
    log.forget(250)
    assert [path.name for path in (tmp_path / "replay").iterdir()] == ["rows-000000000000250.f32"]


def test_a_manifest_that_cannot_be_of_these_rows_is_refused(tmp_path: Path) -> None:
    extents = saved(tmp_path, 250).extents
    for width, counters in (
        (LAYOUT.width, {}),
        (LAYOUT.width, {"replay_written": 249}),
        (7, {"replay_written": 250}),
    ):
        with pytest.raises(CheckpointError):
            restored(tmp_path, Manifest(1, (), extents, width, counters))
    far_away = Manifest(1, (), extents, LAYOUT.width, {"replay_written": 2**50})
    with pytest.raises(CheckpointError, match="none of the rows"):
        restored(tmp_path, far_away)
