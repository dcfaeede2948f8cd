"""What actor-critic algorithms share: networks and their targets, optimisers, and who updates what and when.

Where actor and critics learn on devices of their own, each side has such an object and updates its own networks; the
others are copies of the other side's, as they were when they arrived.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from spreeze.algorithms.algorithm import Algorithm, Terms
from spreeze.algorithms.batch import Batch
from spreeze.algorithms.checks import check_actor, check_bonus, check_target
from spreeze.algorithms.critics import critic_loss, critic_target, values
from spreeze.algorithms.kernels.operations import Adam
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
    AlgorithmSpec,
)

if TYPE_CHECKING:
    from torch import Tensor


class ActorCritic(Algorithm):
    """The base of an algorithm, which declares itself and defines the steps of its critics and its actor.

    This class defines the order of the steps and holds the networks. docs/algorithms/your-own.md shows how to write
    one.
    """

    critics: ClassVar[int] = 2
    """Number of critics; the smallest value counts."""
    targets_follow_the_actor: ClassVar[bool] = False
    """Whether target critics move only when the actor does, and not at every update."""

    def __init__(self, spec: AlgorithmSpec) -> None:
        super().__init__(spec)
        generator = torch.Generator().manual_seed(spec.seed)
        # Of choices, actor and critics have an output for each; critics of vectors see the action.
        choices = sum(spec.choices)
        outputs = choices or spec.action_size * OUTPUTS_PER_ACTION[self.policy_kind]
        self.actor = FlatParameters(actor_shapes(spec.observation_size, outputs, spec.hidden), self.device)
        shapes = critic_shapes(
            spec.observation_size,
            0 if choices else spec.action_size,
            spec.hidden,
            self.critics,
            spec.layer_norm,
            (choices or 1) * spec.atoms,
        )
        self.critic, self.target_critic = FlatParameters(shapes, self.device), FlatParameters(shapes, self.device)
        initialise(self.actor, generator)
        initialise(self.critic, generator)
        self.target_critic.flat.copy_(self.critic.flat)
        trained = {"actor": self.actor, "critic": self.critic}
        self.optimisers = {name: Adam(network.flat, spec.learning_rate) for name, network in trained.items()}

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

    def _is_own(self, actor: Tensors) -> bool:
        return actor is self.actor.trainable or actor is self.actor.frozen

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

    # --- what others read ---------------------------------------------------------------------------------------

    def networks(self) -> list[FlatParameters]:
        """Return all networks, in a fixed order."""
        return [self.actor, self.critic, self.target_critic]

    def policy(self) -> dict[str, Tensor]:
        """Return what is needed to act, by name."""
        return dict(self.actor.frozen)
