"""Makes small algorithms, and reads what their updates report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from spreeze.algorithms.actor_critic import ActorCritic, Terms
from spreeze.algorithms.batch import Batch
from spreeze.algorithms.spec import AlgorithmSpec

CPU = torch.device("cpu")


def make(
    kind: type[ActorCritic],
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


def reported(algorithm: ActorCritic, terms: Terms) -> dict[str, Tensor]:
    """Return the figures of an update by name."""
    return dict(zip((figure.name for figure in algorithm.figures), algorithm.report(terms), strict=True))


def update(algorithm: ActorCritic, batch: Batch, generator: torch.Generator | None = None) -> dict[str, Tensor]:
    """Make an update; return its figures by name."""
    return reported(algorithm, algorithm.update(batch, generator))
