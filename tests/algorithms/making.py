"""Makes small algorithms, and reads what their updates report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from spreeze.algorithms import ALGORITHMS
from spreeze.algorithms.algorithm import Algorithm, Terms
from spreeze.algorithms.batch import Batch
from spreeze.algorithms.spec import AlgorithmSpec
from spreeze.config.own_settings import find_algorithm

CPU = torch.device("cpu")
CONTINUOUS = [algo for algo in ALGORITHMS if "continuous" in find_algorithm(algo).action_kinds]
"""Names of the algorithms that take continuous actions."""


def make(
    kind: type[Algorithm],
    observation_size: int,
    action_size: int,
    hidden: tuple[int, ...] = (16, 16),
    own: Mapping[str, Any] | None = None,
    **shared: Any,
) -> Any:
    """Return an untrained algorithm. own: its own settings; shared: fields of its spec."""
    settings = kind.Settings(**(own or {}))
    return kind(
        AlgorithmSpec(
            observation_size, action_size, **{"device": CPU, "settings": settings, **shared, "hidden": hidden}
        )
    )


def reported(algorithm: Algorithm, terms: Terms) -> dict[str, Tensor]:
    """Return the figures of an update by name."""
    return dict(zip((figure.name for figure in algorithm.figures), algorithm.report(terms), strict=True))


def update(algorithm: Algorithm, batch: Batch, generator: torch.Generator | None = None) -> dict[str, Tensor]:
    """Make an update; return its figures by name."""
    return reported(algorithm, algorithm.update(batch, generator))
