"""Turns observations of any supported space into vectors of float32.

The encoding of a space is plain JSON, stored in policy files, so that acting does not need Gymnasium.
Vectors equal those of `gymnasium.spaces.flatten`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.spaces import Encoding, parts_of, vector_size

Vectors = NDArray[np.float32]


def flatten(encoding: Encoding, observation: Any) -> Vectors:
    """Return one observation as a vector, or a batch as (batch, size); ValueError if it does not fit the space."""
    columns = _columns(encoding, observation, "observation")
    if len({column.shape[:-1] for column in columns}) != 1:
        raise ValueError("observation: some parts are a batch and others are not")
    return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=-1)


def _columns(encoding: Encoding, observation: Any, path: str) -> list[Vectors]:
    kind = encoding["kind"]
    if kind in ("dict", "tuple"):
        columns = []
        for key, part in parts_of(encoding):
            try:
                value = observation[key]
            except (KeyError, IndexError, TypeError):
                raise ValueError(f"{path} has no part {key!r}") from None
            columns += _columns(part, value, f"{path}[{key!r}]")
        return columns
    wanted = np.int64 if kind in ("discrete", "multi_discrete") else np.float32
    try:
        values = np.asarray(observation)
        if wanted is np.int64 and not np.issubdtype(values.dtype, np.integer):
            raise TypeError(f"{values.dtype} is not an integer type")
        if values.dtype.kind not in "biufO":  # NumPy would parse strings, and drop imaginary parts
            raise TypeError(f"{values.dtype} is not a real number type")
        values = values.astype(wanted, copy=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} cannot be used: {error}") from None
    shape = tuple(encoding["shape"]) if "shape" in encoding else ()
    batched = values.ndim == len(shape) + 1
    if values.shape[1 if batched else 0 :] != shape:
        raise ValueError(f"{path} has shape {values.shape}, its space says {shape}")
    lead = values.shape[:1] if batched else ()
    if kind == "discrete":
        return [_one_hot(values - encoding["start"], encoding["n"], path)]
    if kind == "multi_discrete":
        return [_one_hot(values[..., i], n, path) for i, n in enumerate(encoding["nvec"])]
    return [values.reshape(*lead, vector_size(encoding))]


def _one_hot(values: NDArray[Any], n: int, path: str) -> Vectors:
    if np.any(values < 0) or np.any(values >= n):
        raise ValueError(f"{path} holds {values}, outside its {n} values")
    vectors = np.zeros((*values.shape, n), np.float32)
    np.put_along_axis(vectors, values[..., np.newaxis], 1.0, axis=-1)
    return vectors
