"""Discrete actions: what networks give for all values of all components, one component after the other."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from spreeze.algorithms.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor


def first_values(choices: tuple[int, ...], device: torch.device) -> Tensor:
    """Return where the values of each component begin, (components,): added to an action, it says what was chosen."""
    return torch.tensor([0, *accumulate(choices)][:-1], device=device)


def best_choices(values: Tensor, choices: tuple[int, ...]) -> Tensor:
    """Return the index of the most valuable choice of each component, (batch, components)."""
    return torch.stack([part.argmax(-1) for part in values.split(choices, -1)], -1)


def at_choices(outputs: Tensor, index: Tensor) -> Tensor:
    """Return what belongs to one value of each component, (components, batch) or (components, batch, atoms)."""
    if outputs.dim() == 2:
        return outputs.gather(1, index.long()).T.contiguous()
    return outputs.gather(1, index.long()[..., None].expand(-1, -1, outputs.shape[-1])).transpose(0, 1)


def log_probabilities(logits: Tensor, choices: tuple[int, ...]) -> Tensor:
    """Return log pi_d(a|s) for all values of all components, (batch, values), of an actor's outputs."""
    return torch.cat([part.log_softmax(-1) for part in logits.split(choices, -1)], -1)
