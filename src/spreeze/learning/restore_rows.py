"""Restores the replay from the rows on disk: all that are as they were written.

In: the valid checkpoints, newest first. Out: a replay with the rows of the newest, and what had to be left out: a
damaged file costs its own rows, not the networks, nor the rows of other files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spreeze.errors import CheckpointError
from spreeze.learning.replay import Replay
from spreeze.runs.checkpoint_format import Manifest
from spreeze.runs.replay_log import Extent, read_rows, verify


@dataclass(frozen=True)
class RestoredRows:
    """What has become of a replay on disk."""

    extents: tuple[Extent, ...] = ()
    """Of the rows that are in the replay: the next checkpoint continues them."""
    others: tuple[Extent, ...] = ()
    """Of all valid checkpoints. What is damaged stays on disk with them: a disk may have failed for a moment only."""
    next_row: int = 0
    """The number of the first row that no checkpoint has."""
    missing: int = 0
    """Rows that the replay has held and does not hold now: damaged, or overwritten while they were being saved."""
    left_out: int = 0
    """Those of them that were damaged."""
    damage: str = ""
    """What is wrong with the first of those."""


def restore_rows(folder: Path, kept: Sequence[Manifest], replay: Replay, beat: Callable[[], object]) -> RestoredRows:
    """Put the rows of the newest checkpoint back. beat: called again and again, because a large replay takes a while.

    Raises CheckpointError where the manifest cannot be of these rows.
    """
    newest, end = kept[0], _end_of(kept[0])
    oldest_row = max(0, end - replay.capacity)
    needed = [extent for extent in newest.extents if extent.first_row + extent.rows > oldest_row]
    if not newest.extents:
        return leave_rows_out(kept, replay)
    if newest.row_width != replay.width:
        raise CheckpointError(f"{folder} holds rows of another environment")
    if newest.extents[-1].first_row + newest.extents[-1].rows > end:
        raise CheckpointError(f"{folder} is damaged: it counts {end} rows, and holds more")
    if not needed or not needed[-1].rows:
        raise CheckpointError(f"{folder} is damaged: it holds none of the rows that it counts")
    intact: list[Extent] = []
    damages: list[str] = []
    for extent in needed:
        found, damage = _longest_intact(folder / "replay", extent, kept, beat)
        intact += [] if found is None else [found]
        damages += [] if damage is None else [damage]
    held, here = end - oldest_row, _rows_from(oldest_row, intact)
    # Rows that are all there go where they were, so that the same ones are drawn. Else those that are left move up.
    at = intact[0].first_row if here == held else 0
    for _, rows in read_rows(folder / "replay", intact, replay.width):
        beat()
        replay.put_back(at, rows)
        at += len(rows)
    replay.count_from(end)
    return RestoredRows(
        extents=tuple(intact),
        others=_all_extents(kept),
        next_row=end,
        missing=held - here,
        left_out=_rows_from(oldest_row, needed) - here,
        damage="".join(damages[:1]),
    )


def leave_rows_out(kept: Sequence[Manifest], replay: Replay) -> RestoredRows:
    """Begin with an empty replay. What earlier checkpoints have stays on disk as long as they are kept."""
    end = max(map(_end_of, kept), default=0)
    replay.count_from(end)
    return RestoredRows(others=_all_extents(kept), next_row=end)


def _all_extents(kept: Sequence[Manifest]) -> tuple[Extent, ...]:
    return tuple(extent for manifest in kept for extent in manifest.extents)


def _end_of(manifest: Manifest) -> int:
    """Return the number of the row after the last that a checkpoint counts; 0 where its replay was not saved."""
    return int(manifest.counters.get("replay_written", 0))


def _longest_intact(
    folder: Path, extent: Extent, kept: Sequence[Manifest], beat: Callable[[], object]
) -> tuple[Extent | None, str | None]:
    """Return as much of an extent as is intact, and what is wrong if that is not all of it.

    Earlier checkpoints have checksums of the first rows of the file that has grown since.
    """
    shorter = {
        other
        for manifest in kept[1:]
        for other in manifest.extents
        if other.first_row == extent.first_row and 0 < other.rows < extent.rows
    }
    damage: str | None = None
    for candidate in (extent, *sorted(shorter, reverse=True)):
        beat()
        try:
            verify(folder, [candidate], kept[0].row_width)
        except CheckpointError as error:
            damage = damage or str(error)
            continue
        return candidate, damage
    return None, damage


def _rows_from(first_row: int, extents: Iterable[Extent]) -> int:
    """Return how many rows extents have from a row on."""
    return sum(max(0, extent.first_row + extent.rows - max(first_row, extent.first_row)) for extent in extents)
