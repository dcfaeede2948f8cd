"""What the algorithms share: networks and their targets, optimisers, and who updates what and when.

Where actor and critics learn on devices of their own, each side has such an object and updates its own networks; the
others are copies of the other side's, as they were when they arrived.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self

import torch
from torch import Tensor

from spreeze.algorithms.batch import Batch
from spreeze.algorithms.distributional import Distribution
from spreeze.algorithms.kernels.operations import PLAIN, Adam, Operations
from spreeze.algorithms.networks import FlatParameters, actor_shapes, critic_shapes, initialise


class Losses(NamedTuple):
    """What an update reports, each a scalar tensor; 0 for what an algorithm does not have."""

    critic_loss: Tensor
    actor_loss: Tensor
    temperature_loss: Tensor
    temperature: Tensor
    q_mean: Tensor
    entropy: Tensor


class ActorTerms(NamedTuple):
    """What remains of an actor's step for a report."""

    loss: Tensor
    temperature_loss: Tensor
    log_pi: Tensor
    """(batch,), or a mean of it."""


class Terms(NamedTuple):
    """What remains of an update for a report; nobody has to read it."""

    critic_loss: Tensor
    q: Tensor
    """(critics, batch)"""
    actor: ActorTerms
    temperature: Tensor | None
    """Its logarithm."""

    def losses(self) -> Losses:
        """Return the figures that people read."""
        loss, temperature_loss, log_pi = self.actor
        temperature = torch.zeros_like(loss) if self.temperature is None else self.temperature.exp().squeeze()
        return Losses(self.critic_loss, loss, temperature_loss, temperature, self.q.mean(), -log_pi.mean())


class ActorCritic(ABC):
    """An algorithm defines the steps of critics and actor; this class defines their order and holds the networks."""

    policy_kind: Literal["gaussian", "deterministic"]
    """Which actor of policy/ acts with these weights: named in every weights file."""
    critics = 2
    """Number of critics; the smallest value counts."""
    outputs_an_action = 1
    """Numbers that the actor gives for each component of an action."""
    targets_follow_the_actor = False
    """Whether target critics move only when the actor does, and not at every update."""

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        hidden: tuple[int, ...],
        *,
        learning_rate: float,
        tau: float,
        device: torch.device,
        seed: int,
        actor_delay: int = 1,
        layer_norm: bool = False,
        atoms: int = 1,
        value_range: tuple[float, float] = (0.0, 0.0),
        operations: Operations = PLAIN,
        updates_critic: bool = True,
        updates_actor: bool = True,
    ) -> None:
        """updates_critic, updates_actor: False where another process makes these steps and sends its parameters."""
        self.operations, self.device = operations, device
        self.updates_critic, self.updates_actor = updates_critic, updates_actor
        self.tau, self.actor_delay, self.layer_norm = tau, actor_delay, layer_norm
        self.obs_dim, self.act_dim, self.hidden = obs_dim, act_dim, hidden
        self.phase = 0
        """Updates since the actor's last one: what an update consists of depends on it."""
        generator = torch.Generator().manual_seed(seed)
        self.actor = FlatParameters(actor_shapes(obs_dim, act_dim * self.outputs_an_action, hidden), device)
        shapes = critic_shapes(obs_dim, act_dim, hidden, self.critics, layer_norm, atoms)
        self.distribution = Distribution(*value_range, atoms, device) if atoms > 1 else None
        self.critic, self.target_critic = FlatParameters(shapes, device), FlatParameters(shapes, device)
        initialise(self.actor, generator)
        initialise(self.critic, generator)
        self.target_critic.flat.copy_(self.critic.flat)
        trained = {"actor": self.actor, "critic": self.critic}
        self.optimisers = {name: Adam(network.flat, learning_rate) for name, network in trained.items()}
        self._none = torch.zeros((), device=device)  # stands for what was not computed
        # Of the actor's last step, for the reports of updates without one.
        self._kept = torch.zeros(len(ActorTerms._fields), device=device)

    @classmethod
    @abstractmethod
    def of(cls, settings: Mapping[str, Any], obs_dim: int, act_dim: int, **shared: Any) -> Self:
        """Return an untrained algorithm. settings: a config's, by name; shared: what all constructors take."""

    def update(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Take a step for the critics and, where it is its turn, one for the actor; move the targets.

        An object that updates one of them takes that step alone, with the random numbers that it has in the whole.
        """
        noise = torch.randn(2, len(batch.reward), self.act_dim, device=self.device, generator=generator)
        is_actors_turn = self.phase == self.actor_delay - 1
        loss = q = self._none
        of_actor = ActorTerms(*self._kept) if self.actor_delay > 1 else ActorTerms(self._none, self._none, self._none)
        if self.updates_critic:
            loss, q = self.update_critic(batch, noise[0])
        if self.updates_actor and is_actors_turn:
            of_actor = self.update_actor(batch, noise[1])
            if self.actor_delay > 1:
                self._kept.copy_(torch.stack([term.mean() for term in of_actor]))
        if self.updates_critic and (is_actors_turn or not self.targets_follow_the_actor):
            self.target_critic.flat.lerp_(self.critic.flat, self.tau)
        self.phase = (self.phase + 1) % self.actor_delay
        return Terms(loss, q, of_actor, self.temperature_logarithm())

    @abstractmethod
    def update_critic(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Take the critics' step; return their loss and values."""

    @abstractmethod
    def update_actor(self, batch: Batch, noise: Tensor) -> ActorTerms:
        """Take the actor's step, and that of the temperature where there is one."""

    def temperature_logarithm(self) -> Tensor | None:
        """Return the logarithm of the temperature, where there is one."""
        return None

    def of_critic(self) -> list[Tensor]:
        """Return what the critics' side updates and the actor's side needs a copy of."""
        return [self.critic.flat]

    def of_actor(self) -> list[Tensor]:
        """Return what the actor's side updates and the critics' side needs a copy of."""
        return [self.actor.flat]

    def own(self) -> list[Tensor]:
        """Return what this side updates and the other side needs a copy of."""
        return self.of_actor() if self.updates_actor else self.of_critic()

    def others(self) -> list[Tensor]:
        """Return what this side has as a copy of the other side's."""
        return self.of_critic() if self.updates_actor else self.of_actor()

    @property
    def learning_rate(self) -> float:
        """Adam's step size, the same for all networks. A captured update keeps the one it was captured with."""
        return self.optimisers["critic"].learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        for optimiser in self.optimisers.values():
            optimiser.learning_rate = rate

    def blank_copy(self, operations: Operations) -> Self:
        """Return an untrained algorithm of the same shapes, to try or compile something with."""
        values = self.distribution
        return type(self)(
            self.obs_dim,
            self.act_dim,
            self.hidden,
            learning_rate=self.learning_rate,
            tau=self.tau,
            device=self.device,
            seed=0,
            actor_delay=self.actor_delay,
            layer_norm=self.layer_norm,
            atoms=1 if values is None else values.atoms,
            value_range=(0.0, 0.0) if values is None else (values.low, values.high),
            operations=operations,
            updates_critic=self.updates_critic,
            updates_actor=self.updates_actor,
            **self.settings(),
        )

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return the algorithm's own settings, as its constructor takes them."""

    def networks(self) -> list[FlatParameters]:
        """Return all networks, in a fixed order."""
        return [self.actor, self.critic, self.target_critic]

    def parameters(self) -> list[Tensor]:
        """Return the flat parameters of each network."""
        return [network.flat for network in self.networks()]

    def state(self) -> list[Tensor]:
        """Return all tensors that an update changes, in a fixed order; the phase is no tensor."""
        moments = [tensor for optimiser in self.optimisers.values() for tensor in optimiser.state()]
        return [*self.parameters(), *moments]

    def policy(self) -> dict[str, Tensor]:
        """Return what is needed to act, by name."""
        return dict(self.actor.frozen)

    def descend(self, name: str, network: FlatParameters, loss: Tensor) -> None:
        """Take one step of a network's optimiser down the gradient of a loss."""
        network.zero_grad()
        loss.backward()
        self.operations.adam(self.optimisers[name])
