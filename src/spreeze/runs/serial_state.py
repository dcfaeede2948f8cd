"""What a checkpoint of a serial run holds besides the state of its learner: samplers, environments, evaluator.

A safetensors file that the manifest names with its checksum, as it does those of the learner. A run of several
processes has none: its samplers start new episodes when it is resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.metrics import MAX_SAMPLERS
from spreeze.channels.weights import read_weights, write_weights
from spreeze.errors import CheckpointError
from spreeze.host.files import reason_of
from spreeze.runs.checkpoint_format import Manifest, describe, run_of, state_path

PART = "serial"
MAX_BYTES = 1 << 30  # actions of episodes that are under way: 10 million steps of a humanoid


@dataclass(frozen=True)
class SerialState:
    """Where the turns of a serial run stand."""

    generation: int
    """Of the samplers, whose random numbers derive from it."""
    version: int
    """The newest version of the weights."""
    evaluations: int
    evaluated: int
    """The newest version that was evaluated."""
    evaluation_due_at: int
    """Environment steps."""
    held_back: int
    """Environment steps of transitions that are not complete yet."""
    samplers: tuple[Mapping[str, NDArray[Any]], ...]
    """Empty where the run ended in the middle of a step."""


_COUNTS = tuple(field.name for field in fields(SerialState) if field.name != "samplers")


def write(folder: Path, number: int, state: SerialState) -> dict[str, Any]:
    """Write the file of a checkpoint; return the report of it, as learners send theirs."""
    report: dict[str, Any] = {"number": number, "role": PART, "extents": (), "row_width": 0, "counters": {}}
    path = state_path(folder, number, PART)
    tensors = {
        f"{index}.{name}": array for index, sampler in enumerate(state.samplers) for name, array in sampler.items()
    }
    counts = {name: str(getattr(state, name)) for name in _COUNTS}
    try:
        write_weights(path, tensors, {**counts, "samplers": str(len(state.samplers))}, run_of(folder))
        return {**report, "state": asdict(describe(path))}
    except OSError as error:  # a full disk: training continues
        return {"number": number, "role": PART, "failure": reason_of(error)}


def read(folder: Path, manifest: Manifest) -> SerialState | None:
    """Read the file of a checkpoint; None if it has none. Raises CheckpointError where it holds something else."""
    path = state_path(folder, manifest.number, PART)
    if path.name not in {state.name for state in manifest.states}:
        return None
    try:
        arrays, about = read_weights(path, MAX_BYTES, must_have_checksum=True, root=run_of(folder))
        samplers: list[dict[str, NDArray[Any]]] = [{} for _ in range(_count(about["samplers"], MAX_SAMPLERS))]
        for name, array in arrays.items():
            index, _, rest = name.partition(".")
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ValueError("it holds a NaN or an infinity")
            samplers[int(index)][rest] = array
        return SerialState(samplers=tuple(samplers), **{name: _count(about[name]) for name in _COUNTS})
    except (OSError, KeyError, IndexError, ValueError, OverflowError) as error:
        raise CheckpointError(f"{path} cannot be used: {reason_of(error)}") from None


def _count(text: str, most: int = 2**53) -> int:
    if not (text.isdecimal() and len(text) < 17 and int(text) <= most):
        raise ValueError(f"{text[:20]!r} is not a count")
    return int(text)
