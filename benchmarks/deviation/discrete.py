"""Variants of DQN that do one thing as the papers do; trained with `--algo deviation.discrete:NAME`."""

from __future__ import annotations

import torch
from torch import Tensor

from deviation.parts import huber
from spreeze.algorithms import AlgorithmSpec, Batch, FlatParameters, Terms
from spreeze.algorithms.dqn import Dqn

UPDATES_PER_COPY = 100  # a target is then 50 updates old on average, as one that follows by 0.02 is
LONGEST_GRADIENT = 10.0


class CopyingDqn(Dqn):
    """The target network is a copy, made now and then."""

    def __init__(self, spec: AlgorithmSpec) -> None:
        super().__init__(spec)
        self.tau = 0.0
        self._updates = 0

    def update(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        terms = super().update(batch, generator)
        self._updates += 1
        if self._updates % UPDATES_PER_COPY == 0:
            self.target_critic.flat.copy_(self.critic.flat)
        return terms


class HuberDqn(Dqn):
    """The loss is Huber's, which clips the gradient of an error to [-1, 1]."""

    def update(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        self.operations = self.operations._replace(squared_error=huber)
        return super().update(batch, generator)


class ClippedDqn(Dqn):
    """The gradient is no longer than 10."""

    def descend(self, name: str, network: FlatParameters, loss: Tensor) -> None:
        network.zero_grad()
        loss.backward()
        gradient = self.optimisers[name].gradient
        gradient.mul_((LONGEST_GRADIENT / gradient.norm().clamp(min=1e-6)).clamp(max=1.0))
        self.operations.adam(self.optimisers[name])


class SharedLayersDqn(Dqn):
    """The gradient of the layers that all components share is scaled by 1 / (components + 1)."""

    def descend(self, name: str, network: FlatParameters, loss: Tensor) -> None:
        network.zero_grad()
        loss.backward()
        for layer, tensor in network.trainable.items():
            if not layer.startswith(f"critic.{len(self.spec.hidden)}."):
                assert tensor.grad is not None
                tensor.grad.mul_(1 / (len(self.choices) + 1))
        self.operations.adam(self.optimisers[name])
