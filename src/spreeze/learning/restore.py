"""Restores a learner from a checkpoint: networks, optimisers, random numbers, replay and counters.

In: the numbers of the valid checkpoints. Out: a learner that makes the updates that the saved one would have
made, and the point that it starts from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze.algorithms.actor_critic import ActorCritic
from spreeze.channels.brief import Brief
from spreeze.channels.weights import read_weights
from spreeze.config import LearnerRole
from spreeze.errors import CheckpointError
from spreeze.host.files import reason_of
from spreeze.learning.checkpoint_writer import named_state
from spreeze.learning.normalisation import Normaliser
from spreeze.learning.replay import Replay
from spreeze.runs.checkpoint_counters import counters_of
from spreeze.runs.checkpoint_format import Manifest, manifest_path, read_manifest, run_of, state_path
from spreeze.runs.replay_log import Extent, read_rows

MAX_OTHER_STATE_BYTES = 1 << 24
FILL_ROWS = 1 << 16


@dataclass(frozen=True)
class StartingPoint:
    """Where a learner starts."""

    checkpoint: int
    """The number of the checkpoint that it was restored from; 0 if there is none."""
    updates: int
    min_rows: int
    """Rows that must be consumed before the first update; without a saved replay it has to be filled again."""
    extents: tuple[Extent, ...]
    """Of the replay on disk, in all valid checkpoints."""


def start_from_checkpoint(
    brief: Brief,
    role: LearnerRole,
    algorithm: ActorCritic,
    replay: Replay,
    normaliser: Normaliser | None,
    counters: NDArray[Any],
    beat: Callable[[], object],
) -> StartingPoint:
    """Restore the newest valid checkpoint if there is one, and set the learner's counters."""
    folder = brief.run_dir / "checkpoint"
    kept = tuple(read_manifest(manifest_path(folder, number)) for number in brief.checkpoints)
    if kept:
        restore(folder, kept[0], algorithm, replay, normaliser, beat, role)
    min_rows = _set_counters(counters, kept, role, brief.config.sampling.warmup_steps, len(replay))
    # Rows are counted from 0 again where they were not saved, and those of older checkpoints do not count.
    extents = tuple(extent for manifest in kept for extent in manifest.extents) if len(replay) else ()
    return StartingPoint(kept[0].number if kept else 0, int(counters["updates"][0]), min_rows, extents)


def _set_counters(
    counters: NDArray[Any], kept: Sequence[Manifest], role: LearnerRole, warmup: int, replay_rows: int
) -> int:
    """Set the counters to those of the newest checkpoint; return the rows to consume before the first update."""
    restored = counters_of(kept[0] if kept else None, role)
    # Rows that an earlier learner of this session has consumed since the checkpoint are lost.
    lost_rows = int(restored["rows_consumed"]) - int(counters["rows_consumed"][0])
    min_rows = 0
    if kept and not replay_rows:
        # Without its rows a run collects as many as in its warm-up. Samplers are allowed more steps than that: some
        # rows may be unusable, and how far samplers may be ahead depends on how many there are.
        min_rows = int(restored["rows_consumed"]) + warmup
        lost_rows -= 2 * warmup
    counters["steps_offset"] += lost_rows
    for name, value in restored.items():
        counters[name] = value
    counters["replay_rows"], counters["is_steady"] = replay_rows, 0
    return min_rows


def restore(
    folder: Path,
    manifest: Manifest,
    algorithm: ActorCritic,
    replay: Replay | None,
    normaliser: Normaliser | None,
    beat: Callable[[], object] = lambda: None,
    role: LearnerRole = "all",
) -> None:
    """Restore an algorithm and its replay from a checkpoint. Raises CheckpointError; sizes are checked before use.

    beat: called again and again, because a large replay takes a while.
    """
    path = state_path(folder, manifest.number, role)
    expected = named_state(algorithm)
    expected_bytes = sum(tensor.numel() * tensor.element_size() for tensor in expected.values())
    try:
        # Besides the networks: random numbers, statistics of observations, and names.
        arrays, about = read_weights(path, 2 * expected_bytes + MAX_OTHER_STATE_BYTES, root=run_of(folder))
        found = {name: torch.from_numpy(arrays[name].copy()) for name in expected}
        for name, tensor in expected.items():
            if found[name].shape != tensor.shape or found[name].dtype != tensor.dtype:
                raise ValueError(f"it is of other networks: {name} has another shape or type")
        if not all(np.isfinite(array).all() for array in arrays.values()):
            raise ValueError("it holds a NaN or an infinity")
        phase = int(about["phase"])
        random = {name: torch.from_numpy(arrays[name].copy()) for name in arrays if name.startswith("random.")}
        torch.set_rng_state(random["random.cpu"])
        if normaliser is not None:
            normaliser.restore(arrays)
    except torch.OutOfMemoryError:
        raise  # nothing is wrong with the file
    except (OSError, KeyError, IndexError, ValueError, OverflowError, TypeError, RuntimeError) as error:
        raise CheckpointError(f"{path} cannot be used: {reason_of(error)}") from None
    for name, tensor in expected.items():
        tensor.copy_(found[name])
    algorithm.phase = phase % algorithm.actor_delay
    if algorithm.device.type == "cuda" and "random.cuda" in random:
        torch.cuda.set_rng_state(random["random.cuda"], algorithm.device)
    if replay is not None and manifest.extents:
        _restore_rows(folder, manifest, replay, beat)


def _restore_rows(folder: Path, manifest: Manifest, replay: Replay, beat: Callable[[], object]) -> None:
    last = manifest.extents[-1]
    written = int(manifest.counters.get("replay_written", -1))
    if manifest.row_width != replay.width:
        raise CheckpointError(f"{folder} holds rows of another environment")
    if last.first_row + last.rows > written:
        raise CheckpointError(f"{folder} is damaged: it counts {written} rows, and holds more")
    oldest_row = max(0, written - replay.capacity)
    needed = [extent for extent in manifest.extents if extent.first_row + extent.rows > oldest_row]
    if not needed or not needed[-1].rows:
        raise CheckpointError(f"{folder} is damaged: it holds none of the rows that it counts")
    at = oldest_row
    for first_row, rows in read_rows(folder / "replay", needed, replay.width):
        beat()
        # Rows that were overwritten while they were being saved are replaced by others.
        if first_row > at:
            _fill(replay, at, first_row, rows)
        replay.put_back(first_row, rows)
        at = first_row + len(rows)
    _fill(replay, at, written, rows)


def _fill(replay: Replay, at: int, until: int, rows: NDArray[np.float32]) -> None:
    block = np.resize(rows, (min(max(0, until - at), FILL_ROWS), rows.shape[1]))
    while at < until:
        replay.put_back(at, block[: until - at])
        at += len(block)
