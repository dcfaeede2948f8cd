"""What actor-critic algorithms share: networks and their targets, optimisers, and who updates what and when.

Where actor and critics learn on devices of their own, each side has such an object and updates its own networks; the
others are copies of the other side's, as they were when they arrived.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from spreeze.algorithms.batch import Batch
from spreeze.algorithms.checks import check_actor, check_bonus, check_descent, check_target, check_terms
from spreeze.algorithms.critics import critic_loss, critic_target, values
from spreeze.algorithms.distributional import Distribution
from spreeze.algorithms.kernels.operations import Adam, Operations
from spreeze.algorithms.lazy_torch import torch
from spreeze.algorithms.networks import (
    FlatParameters,
    Tensors,
    actor_shapes,
    critic_shapes,
    deterministic_action,
    initialise,
    sample_action,
)
from spreeze.algorithms.spec import (
    OUTPUTS_PER_ACTION,
    ActionKind,
    AlgorithmSpec,
    Figure,
    NoSettings,
    ObservationKind,
    PolicyKind,
    Recipe,
)

if TYPE_CHECKING:
    from torch import Tensor

Terms = Mapping[str, "Tensor"]
"""What a step of an update returns for its figures, by their names: tensors of any shape."""


class ActorCritic(ABC):
    """The base of an algorithm, which declares itself and defines the steps of its critics and its actor.

    This class defines the order of the steps and holds the networks. docs/algorithms/your-own.md shows how to write
    one.
    """

    # --- what an algorithm declares ----------------------------------------------------------------------------

    Settings: ClassVar[type] = NoSettings
    """Its own settings: a frozen dataclass with a default and a docstring for each. They are flags, keywords of
    `spreeze.train` and keys of config.json; a ValueError of its __post_init__ is shown to the user."""
    figures: ClassVar[tuple[Figure, ...]]
    """What it reports, in the order in which people see it."""
    recipe: ClassVar[Recipe] = Recipe()
    policy_kind: ClassVar[PolicyKind]
    """Which actor acts with these weights: one that gives a Gaussian, squashed by tanh, or an action. Named in every
    weights file."""
    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("continuous",)
    """The action spaces that it takes."""
    observation_kinds: ClassVar[tuple[ObservationKind, ...]] = ("vector",)
    """The observation spaces that it takes."""
    critics: ClassVar[int] = 2
    """Number of critics; the smallest value counts."""
    targets_follow_the_actor: ClassVar[bool] = False
    """Whether target critics move only when the actor does, and not at every update."""

    settings: Any
    """An instance of `Settings`."""

    def __init__(self, spec: AlgorithmSpec) -> None:
        self.spec, self.settings, self.device = spec, spec.settings, spec.device
        self.operations, self.tau, self.actor_delay = spec.operations, spec.tau, spec.actor_delay
        self.updates_critic, self.updates_actor = spec.updates_critic, spec.updates_actor
        self.phase = 0
        """Updates since the actor's last one: what an update consists of depends on it."""
        generator = torch.Generator().manual_seed(spec.seed)
        outputs = spec.action_size * OUTPUTS_PER_ACTION[self.policy_kind]
        self.actor = FlatParameters(actor_shapes(spec.observation_size, outputs, spec.hidden), self.device)
        shapes = critic_shapes(
            spec.observation_size, spec.action_size, spec.hidden, self.critics, spec.layer_norm, spec.atoms
        )
        self.distribution = (
            Distribution(*spec.value_range, spec.atoms, self.device)
            if spec.value_range is not None and spec.atoms > 1
            else None
        )
        self.critic, self.target_critic = FlatParameters(shapes, self.device), FlatParameters(shapes, self.device)
        initialise(self.actor, generator)
        initialise(self.critic, generator)
        self.target_critic.flat.copy_(self.critic.flat)
        trained = {"actor": self.actor, "critic": self.critic}
        self.optimisers = {name: Adam(network.flat, spec.learning_rate) for name, network in trained.items()}
        self._none = torch.zeros((), device=self.device)  # stands for what was not computed
        # The figures of the actor's last step, for the reports of updates without one.
        self._kept = {figure.name: self._none.clone() for figure in self.figures if figure.side == "actor"}

    # --- an update ---------------------------------------------------------------------------------------------

    def update(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Take a step for the critics and, where it is its turn, one for the actor; then move the target critics.

        An object that updates one of them takes that step alone, with the random numbers that it has in the whole.
        """
        noise = torch.randn(2, len(batch.reward), self.spec.action_size, device=self.device, generator=generator)
        is_actors_turn = self.phase == self.actor_delay - 1
        terms: dict[str, Tensor] = {}
        if self.updates_critic:
            terms.update(self._checked("critic", self.update_critic(batch, noise[0])))
        if self.updates_actor and is_actors_turn:
            terms.update(self._checked("actor", self.update_actor(batch, noise[1])))
            if self.actor_delay > 1:
                self._keep(terms)
        if self.updates_critic and (is_actors_turn or not self.targets_follow_the_actor):
            self.target_critic.flat.lerp_(self.critic.flat, self.tau)
        self.phase = (self.phase + 1) % self.actor_delay
        return terms

    @abstractmethod
    def update_critic(self, batch: Batch, noise: Tensor) -> Terms:
        """Take the critics' step. noise: standard normal, (batch, action_size). Return its figures by name."""

    @abstractmethod
    def update_actor(self, batch: Batch, noise: Tensor) -> Terms:
        """Take the actor's step, and those of what learns with it. noise, and what to return: as above."""

    # --- what the steps are made of ----------------------------------------------------------------------------
    # With the operations of the device, and with distributional critics where the user asks for them. Each takes the
    # parameters of a network: `trainable` for a gradient with respect to them, `frozen` otherwise.

    def sample_action(self, actor: Tensors, observation: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return a = tanh(mean + std * noise) of a Gaussian actor, and log pi(a | observation), (batch,)."""
        if self._is_own(actor):
            check_actor(self.policy_kind, "gaussian", "use `deterministic_action`")
        return sample_action(actor, observation, noise, self.operations)

    def deterministic_action(self, actor: Tensors, observation: Tensor) -> Tensor:
        """Return the action of a deterministic actor."""
        if self._is_own(actor):
            check_actor(self.policy_kind, "deterministic", "use `sample_action`")
        return deterministic_action(actor, observation, self.operations)

    def values(self, critic: Tensors, observation: Tensor, action: Tensor) -> Tensor:
        """Return Q_i(s, a) of all critics, (critics, batch)."""
        return values(critic, observation, action, self.operations, self.distribution)

    def critic_target(self, batch: Batch, next_action: Tensor, bonus: Tensor | None = None) -> Tensor:
        """y = r + discount (1 - terminated) (min_i Q'_i(s', a') + bonus), Q' the target critics. bonus: (batch,)."""
        if bonus is not None:
            check_bonus(bonus, len(batch.reward))
        target = self.target_critic.frozen
        return critic_target(target, batch, next_action, bonus, self.operations, self.distribution)

    def critic_loss(self, batch: Batch, target: Tensor) -> tuple[Tensor, Tensor]:
        """J_Q = sum_i E[ 1/2 (Q_i(s, a) - y)^2 ], for a target of `critic_target`, and Q, (critics, batch)."""
        check_target(target, len(batch.reward), None if self.distribution is None else self.distribution.atoms)
        return critic_loss(self.critic.trainable, batch, target, self.operations, self.distribution)

    def descend(self, name: str, network: FlatParameters, loss: Tensor) -> None:
        """Take one step of a network's optimiser down the gradient of a loss."""
        check_descent(self.optimisers, name, network, loss)
        network.zero_grad()
        loss.backward()
        self.operations.adam(self.optimisers[name])

    def report(self, terms: Terms) -> Tensor:
        """Return the figures of an update, (figures,); 0 for those that this side does not compute."""
        return torch.stack(
            [
                self._number(figure, terms[figure.name])
                if figure.name in terms
                else self._kept.get(figure.name, self._none)
                for figure in self.figures
            ]
        )

    def _checked(self, side: Literal["critic", "actor"], terms: Terms) -> Terms:
        check_terms(type(self).__name__, side, terms, self.figures)
        return terms

    def _is_own(self, actor: Tensors) -> bool:
        return actor is self.actor.trainable or actor is self.actor.frozen

    @staticmethod
    def _number(figure: Figure, term: Tensor) -> Tensor:
        return (figure.read or torch.mean)(term.detach()).squeeze()

    def _keep(self, terms: Terms) -> None:
        for figure in self.figures:
            if figure.side == "actor" and figure.name in terms:
                self._kept[figure.name].copy_(self._number(figure, terms[figure.name]))

    # --- two devices -------------------------------------------------------------------------------------------

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

    # --- what others read and set ------------------------------------------------------------------------------

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
        return type(self)(replace(self.spec, learning_rate=self.learning_rate, seed=0, operations=operations))

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
