"""Checkpoints: all that a run needs to be resumed, in its folder's `checkpoint/`.

A checkpoint is a manifest that names its files with their sizes and checksums: the state of each learner
(safetensors: networks, targets, optimisers, temperature, normalisation, random numbers) and extents of the replay
on disk (`replay_log`). Files are written first and never changed; the manifest is written last, to a temporary file
that is renamed. So a kill at any byte leaves the previous checkpoint as it was. Two are kept: where the newest is
damaged, the other one is used. No file is executed, and nothing is allocated before its size was checked.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from spreeze.errors import CheckpointError
from spreeze.host.files import open_regular, read_bounded, write_together
from spreeze.host.json_text import json_text
from spreeze.host.own_files import list_own, remove_own, stat_own, sync_own_folder
from spreeze.runs.replay_log import Extent, check_extents

FORMAT = 1
KEPT = 2
MAX_MANIFEST_BYTES = 1 << 24
MAX_STATE_BYTES = 1 << 34  # networks, targets and moments: four billion numbers
MAX_STATES = 3  # the two sides of a split learner, and what else a serial run depends on
_BLOCK_BYTES = 1 << 22


@dataclass(frozen=True)
class StateFile:
    """A file of a checkpoint, as it was written."""

    name: str
    byte_count: int
    checksum: int


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint consists of."""

    number: int
    """Counts from 1 over all sessions of a run."""
    states: tuple[StateFile, ...]
    """Of the learner, or of the critics' side and the actor's side."""
    extents: tuple[Extent, ...]
    """Of the replay; none where it is not saved."""
    row_width: int
    counters: Mapping[str, int | float]
    """env_steps, updates and the like."""
    progress: Mapping[str, Any] = field(default_factory=dict)
    """What the supervisor continues with: clock, best evaluation, settings found."""


def run_of(folder: Path) -> Path:
    """Return the run folder of a folder of checkpoints, its `checkpoint`."""
    return folder.parent


def state_path(folder: Path, number: int, part: str) -> Path:
    """Return where a learner writes its state."""
    return folder / f"state-{part}-{number:06d}.safetensors"


def describe(path: Path) -> StateFile:
    """Return a file's entry in a manifest. Waits until the file is on the disk."""
    with open_regular(path, run_of(path.parent)) as file:
        os.fsync(file.fileno())
        checksum, byte_count = 0, 0
        while block := file.read(_BLOCK_BYTES):
            checksum, byte_count = zlib.crc32(block, checksum), byte_count + len(block)
    return StateFile(path.name, byte_count, checksum)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Make a checkpoint valid, and delete files that only older checkpoints needed."""
    content = json_text({"format": FORMAT, **asdict(manifest)}, is_compact=True).encode()
    path = manifest_path(folder, manifest.number)
    write_together({path: b"%08x\n" % zlib.crc32(content) + content}, run_of(folder), sync=True)
    sync_own_folder(folder, run_of(folder))
    _tidy(folder)


def newest_checkpoints(folder: Path) -> list[Manifest]:
    """Return the checkpoints that are kept and whose manifest can be read, newest first."""
    found: list[Manifest] = []
    with contextlib.suppress(OSError):  # the folder cannot be read, or is a link
        for path in reversed(list_own(folder, run_of(folder), "manifest-*.json")):
            with contextlib.suppress(CheckpointError):
                found.append(read_manifest(path))
    return found[:KEPT]  # there is one more if the run was killed before deleting it


def newest_number(folder: Path) -> int:
    """Return the highest number that any file of a checkpoint has, valid or not."""
    paths = list_own(folder, run_of(folder))
    kinds = ("manifest-*.json", "state-*.safetensors")
    return max((_number_of(path) for path in paths if any(map(path.match, kinds))), default=0)


def read_manifest(path: Path) -> Manifest:
    """Read a manifest. Raises CheckpointError if it is damaged or of another format."""
    try:
        raw = read_bounded(path, MAX_MANIFEST_BYTES, run_of(path.parent))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror})") from None
    checksum, _, content = raw.partition(b"\n")
    try:
        if int(checksum[:16], 16) != zlib.crc32(content):
            raise CheckpointError(f"{path} is damaged: its checksum differs")
        fields = json.loads(content)
        if fields.pop("format") != FORMAT:
            raise CheckpointError(f"{path} has a format that this version of Spreeze does not read")
        return _manifest_of(fields)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise CheckpointError(f"{path} is damaged: it is not a manifest") from None


def _manifest_of(fields: dict[str, Any]) -> Manifest:
    states = tuple(
        StateFile(_plain_name(entry["name"]), _count(entry["byte_count"], MAX_STATE_BYTES), _count(entry["checksum"]))
        for entry in fields["states"]
    )
    extents = tuple(Extent(*(_count(number) for number in entry)) for entry in fields["extents"])
    row_width = _count(fields["row_width"])
    check_extents(extents, row_width)
    if len(states) > MAX_STATES or len({state.name for state in states}) < len(states):
        raise ValueError("more states than a run has")
    counters = {str(name): _number(value) for name, value in fields["counters"].items()}
    return Manifest(_count(fields["number"]), states, extents, row_width, counters, dict(fields["progress"]))


def _plain_name(name: object) -> str:
    # A path here would let a manifest name any file of the machine.
    if not isinstance(name, str) or name != Path(name).name or name.startswith(".") or not len(name) < 256:
        raise ValueError("not the name of a file")
    return name


def _count(value: object, most: int = 2**53) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError("not a count")
    return value


def _number(value: object) -> int | float:
    if isinstance(value, float) and math.isfinite(value):
        return value
    return _count(value)


def verify_states(folder: Path, manifest: Manifest) -> None:
    """Raise CheckpointError if a state file of a checkpoint is missing or damaged."""
    for state in manifest.states:
        path = folder / state.name
        try:
            # The size first: it is known at once, and a device in this place would have no end.
            if stat_own(path, run_of(folder)).st_size != state.byte_count or describe(path) != state:
                raise CheckpointError(f"{path} is damaged: its size or checksum differs")
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read ({error.strerror})") from None


def discard(folder: Path, manifest: Manifest) -> None:
    """Delete a damaged checkpoint, so that older ones are kept instead."""
    _delete(manifest_path(folder, manifest.number))


def _tidy(folder: Path) -> None:
    """Delete all manifests but the newest, and every file that none of those names."""
    paths = list_own(folder, run_of(folder), "manifest-*.json")[::-1]
    kept: list[Manifest] = []
    for path in paths:
        try:
            manifest = read_manifest(path)
        except CheckpointError:
            _delete(path)
            continue
        if len(kept) < KEPT:
            kept.append(manifest)
        else:
            _delete(path)
    newest = max((manifest.number for manifest in kept), default=0)
    named = {state.name for manifest in kept for state in manifest.states}
    for path in list_own(folder, run_of(folder), "state-*.safetensors"):
        # One with a higher number is being written for the next checkpoint.
        if path.name not in named and _number_of(path) <= newest:
            _delete(path)
    for path in list_own(folder, run_of(folder), ".state-*.safetensors.*"):  # begun by a learner that was killed
        if _number_of(Path(path.stem)) <= newest:
            _delete(path)


def oldest_row_needed(manifests: Sequence[Manifest]) -> int:
    """Return the first row that any of these checkpoints refers to; 0 if none does."""
    return min((manifest.extents[0].first_row for manifest in manifests if manifest.extents), default=0)


def _number_of(path: Path) -> int:
    digits = path.stem.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


def manifest_path(folder: Path, number: int) -> Path:
    """Return the path of a checkpoint's manifest."""
    return folder / f"manifest-{number:06d}.json"


def _delete(path: Path) -> None:
    with contextlib.suppress(OSError):  # the disk may be read-only
        remove_own(path, run_of(path.parent))
