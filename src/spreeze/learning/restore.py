"""Restores a learner from a checkpoint: networks, optimisers, random numbers, replay and counters.

In: the numbers of the valid checkpoints. Out: a learner that makes the updates that the saved one would have
made, and the point that it starts from. Networks that are damaged are an error, rows that are damaged are left out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze.algorithms.algorithm import Algorithm
from spreeze.channels.brief import Brief
from spreeze.channels.control import RecordEvent
from spreeze.channels.weights import read_weights
from spreeze.config import LearnerRole
from spreeze.errors import CheckpointError
from spreeze.host.files import reason_of
from spreeze.learning.checkpoint_writer import named_state
from spreeze.learning.normalisation import Normaliser
from spreeze.learning.replay import Replay
from spreeze.learning.restore_rows import RestoredRows, leave_rows_out, restore_rows
from spreeze.runs.checkpoint_counters import counters_of
from spreeze.runs.checkpoint_format import Manifest, manifest_path, read_manifest, run_of, state_path

MAX_OTHER_STATE_BYTES = 1 << 24


@dataclass(frozen=True)
class StartingPoint:
    """Where a learner starts."""

    checkpoint: int
    """The number of the checkpoint that it was restored from; 0 if there is none."""
    updates: int
    min_rows: int
    """Rows that must be consumed before the first update; without a saved replay it has to be filled again."""
    rows: RestoredRows
    """What is known of the replay on disk."""


def start_from_checkpoint(
    brief: Brief,
    role: LearnerRole,
    algorithm: Algorithm,
    replay: Replay,
    normaliser: Normaliser | None,
    counters: NDArray[Any],
    beat: Callable[[], object],
    record_event: RecordEvent,
) -> StartingPoint:
    """Restore the newest valid checkpoint if there is one, and set the learner's counters."""
    folder, rows = brief.run_dir / "checkpoint", RestoredRows()
    kept = _read_kept(folder, brief.checkpoints)
    if kept:
        has_rows = bool(kept[0].extents) and kept[0].number > brief.without_replay_until
        found = restore(folder, kept[0], algorithm, replay if has_rows else None, normaliser, beat, role, kept[1:])
        rows = leave_rows_out(kept, replay) if found is None else found
    if rows.left_out and role != "actor":  # both sides of a split learner read the same files
        _tell(kept[0], rows, len(replay), record_event)
    min_rows = _set_counters(counters, kept, role, brief.config.sampling.warmup_steps, len(replay), rows.missing)
    return StartingPoint(kept[0].number if kept else 0, int(counters["updates"][0]), min_rows, rows)


def _read_kept(folder: Path, numbers: Sequence[int]) -> tuple[Manifest, ...]:
    """Read manifests, newest first; raise CheckpointError if that of the newest is damaged."""
    if not numbers:
        return ()
    kept = [read_manifest(manifest_path(folder, numbers[0]))]
    for number in numbers[1:]:
        # It only knows what else is on disk: without it, what the newest has is used all the same.
        with contextlib.suppress(CheckpointError):
            kept.append(read_manifest(manifest_path(folder, number)))
    return tuple(kept)


def _tell(manifest: Manifest, rows: RestoredRows, replay_rows: int, record_event: RecordEvent) -> None:
    rest = f"the other {replay_rows:,} are used" if replay_rows else "none is left, and new ones are collected first"
    what = f"{rows.left_out:,} transitions are damaged and left out, {rest}"
    record_event(
        "warning",
        f"checkpoint {manifest.number}: {what}: {rows.damage}",
        checkpoint=manifest.number,
        transitions_left_out=rows.left_out,
    )


def _set_counters(
    counters: NDArray[Any],
    kept: Sequence[Manifest],
    role: LearnerRole,
    warmup: int,
    replay_rows: int,
    missing_rows: int,
) -> int:
    """Set the counters to those of the newest checkpoint; return the rows to consume before the first update."""
    restored = counters_of(kept[0] if kept else None, role)
    # Rows that the learner before this one has consumed since the checkpoint are lost.
    lost_rows = int(restored["rows_consumed"]) - int(counters["rows_consumed"][0])
    min_rows = again = 0
    if kept:
        # Without its rows a run collects as many as in its warm-up, and without some of them, up to as many.
        again = min(missing_rows, max(0, warmup - replay_rows)) if replay_rows else warmup
        min_rows = int(restored["rows_consumed"]) + again
    # Samplers are allowed more steps than that: some rows may be unusable, and how far samplers may be ahead depends
    # on how many there are.
    counters["steps_ahead"] = 2 * again
    counters["steps_offset"] += lost_rows
    for name, value in restored.items():
        counters[name] = value
    counters["replay_rows"], counters["is_steady"] = replay_rows, 0
    return min_rows


def restore(
    folder: Path,
    manifest: Manifest,
    algorithm: Algorithm,
    replay: Replay | None,
    normaliser: Normaliser | None,
    beat: Callable[[], object] = lambda: None,
    role: LearnerRole = "all",
    earlier: Sequence[Manifest] = (),
) -> RestoredRows | None:
    """Restore an algorithm and its replay from a checkpoint. Raises CheckpointError; sizes are checked before use.

    replay: None to restore no rows; then None is returned. beat: called again and again, because a large replay takes
    a while. earlier: the checkpoints before this one, which know checksums of parts of files that are damaged now.
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
    return None if replay is None else restore_rows(folder, (manifest, *earlier), replay, beat)
