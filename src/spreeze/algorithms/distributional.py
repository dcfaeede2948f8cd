"""Critics that give a distribution of values instead of their mean (C51).

Bellemare et al., "A Distributional Perspective on Reinforcement Learning", 2017 (arXiv 1707.06887). A distribution
has atoms at fixed values; its mean is what actors climb on. Of two critics the distribution with the smaller mean
counts, as the smaller value does without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spreeze.algorithms.batch import Batch
from spreeze.algorithms.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor


class Distribution:
    """Probabilities of values between two bounds. What critics give, logits, is (critics, batch, atoms)."""

    def __init__(self, low: float, high: float, atoms: int, device: torch.device) -> None:
        self.low, self.high, self.atoms = low, high, atoms
        self.values = torch.linspace(low, high, atoms, device=device)
        """Of the atoms."""

    def mean(self, logits: Tensor) -> Tensor:
        """Return sum_j p_j z_j, (critics, batch)."""
        return logits.softmax(-1) @ self.values

    def target(self, logits: Tensor, batch: Batch, bonus: Tensor | None = None) -> Tensor:
        """Return the smaller distribution, moved to r + discount (1 - terminated) (z + bonus), (batch, atoms)."""
        probabilities = logits.softmax(-1)
        smaller = (probabilities @ self.values).argmin(0)
        chosen = probabilities.gather(0, smaller[None, :, None].expand(1, -1, self.atoms))[0]
        values = self.values if bonus is None else self.values + bonus[:, None]
        moved = batch.reward[:, None] + (batch.discount * (1 - batch.terminated))[:, None] * values
        return self._project(chosen, moved)

    def cross_entropy(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return sum_i E[ -sum_j target_j log p_ij ]."""
        return -(target * logits.log_softmax(-1)).sum(-1).mean(-1).sum()

    def _project(self, probabilities: Tensor, values: Tensor) -> Tensor:
        """Share each probability between the two atoms next to its value, in proportion to how near they are."""
        at = (values.clamp(self.low, self.high) - self.low) * ((self.atoms - 1) / (self.high - self.low))
        below = at.floor().long().clamp(0, self.atoms - 2)  # also where a value is not a number: the loss shows it
        above_share = at - below
        shared = torch.zeros_like(probabilities)
        shared.scatter_add_(-1, below, probabilities * (1 - above_share))
        shared.scatter_add_(-1, below + 1, probabilities * above_share)
        return shared
