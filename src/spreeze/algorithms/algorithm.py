"""What every algorithm is to the rest of Spreeze: what it declares, its update, its state and the policy it makes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from spreeze.algorithms.batch import Batch
from spreeze.algorithms.checks import check_descent, check_terms
from spreeze.algorithms.distributional import Distribution
from spreeze.algorithms.kernels.operations import Adam, Operations
from spreeze.algorithms.lazy_torch import torch
from spreeze.algorithms.networks import FlatParameters
from spreeze.algorithms.spec import (
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


class Algorithm(ABC):
    """Declares itself, and learns from batches. Most have actor and critics: `ActorCritic`."""

    # --- what an algorithm declares ----------------------------------------------------------------------------

    Settings: ClassVar[type] = NoSettings
    """Its own settings: a frozen dataclass with a default and a docstring for each. They are flags, keywords of
    `spreeze.train` and keys of config.json; a ValueError of its __post_init__ is shown to the user."""
    figures: ClassVar[tuple[Figure, ...]]
    """What it reports, in the order in which people see it."""
    recipe: ClassVar[Recipe] = Recipe()
    policy_kind: ClassVar[PolicyKind]
    """Which actor acts with these weights. Of numbers: one that gives a Gaussian, squashed by tanh, or an action. Of
    choices: one that takes the most valuable, or draws one. Named in every weights file."""
    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("continuous",)
    """The action spaces that it takes."""
    observation_kinds: ClassVar[tuple[ObservationKind, ...]] = ("vector",)
    """The observation spaces that it takes."""
    critics: ClassVar[int] = 1
    """Number of critics."""
    has_actor: ClassVar[bool] = True
    """Whether a network of its own acts, which may learn on another device than the critics."""

    @classmethod
    def for_actions(cls, _kind: ActionKind) -> type[Algorithm]:
        """Return the class that learns actions of this kind: itself, or one with the same settings and figures."""
        return cls

    settings: Any
    """An instance of `Settings`."""

    def __init__(self, spec: AlgorithmSpec) -> None:
        self.spec, self.settings, self.device = spec, spec.settings, spec.device
        self.operations, self.tau, self.actor_delay = spec.operations, spec.tau, spec.actor_delay
        self.updates_critic, self.updates_actor = spec.updates_critic, spec.updates_actor
        self.phase = 0
        """Updates since the actor's last one: what an update consists of depends on it."""
        self.distribution = (
            Distribution(*spec.value_range, spec.atoms, self.device)
            if spec.value_range is not None and spec.atoms > 1
            else None
        )
        self.optimisers: dict[str, Adam] = {}
        self._none = torch.zeros((), device=self.device)  # stands for what was not computed
        # The figures of the actor's last step, for the reports of updates without one.
        self._kept = {figure.name: self._none.clone() for figure in self.figures if figure.side == "actor"}

    # --- an update ---------------------------------------------------------------------------------------------

    @abstractmethod
    def update(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Learn from a batch; return figures by name."""

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

    @staticmethod
    def _number(figure: Figure, term: Tensor) -> Tensor:
        return (figure.read or torch.mean)(term.detach()).squeeze()

    def _keep(self, terms: Terms) -> None:
        for figure in self.figures:
            if figure.side == "actor" and figure.name in terms:
                self._kept[figure.name].copy_(self._number(figure, terms[figure.name]))

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

    @abstractmethod
    def networks(self) -> list[FlatParameters]:
        """Return all networks, in a fixed order."""

    def parameters(self) -> list[Tensor]:
        """Return the flat parameters of each network."""
        return [network.flat for network in self.networks()]

    def state(self) -> list[Tensor]:
        """Return all tensors that an update changes, in a fixed order; the phase is no tensor."""
        moments = [tensor for optimiser in self.optimisers.values() for tensor in optimiser.state()]
        return [*self.parameters(), *moments]

    @abstractmethod
    def policy(self) -> dict[str, Tensor]:
        """Return what is needed to act, by name."""
