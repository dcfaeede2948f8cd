"""Deep Q-learning for discrete actions: double, dueling, over several steps, and distributional if asked for.

Mnih et al., "Human-Level Control through Deep Reinforcement Learning", 2015. Double: van Hasselt et al. 2016 (arXiv
1509.06461), equation (4) there. Dueling: Wang et al. 2016 (arXiv 1511.06581), equation (9) there. Actions of several
components have a branch for each: Tavakoli et al. 2018 (arXiv 1711.08946), equations (1) and (5) there.

An update, in this order (`Dqn.update`):

    1. y = r + discount (1 - terminated) mean_d Q'_d(s', argmax_a Q_d(s', a)),  d the components of the action
       descend J_Q = mean_d E[ 1/2 (Q_d(s, a_d) - y)^2 ]
    2. Q' <- (1 - tau) Q' + tau Q

docs/algorithms/dqn.md explains the figures and lists what differs from the papers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spreeze.algorithms.algorithm import Algorithm, Terms
from spreeze.algorithms.batch import Batch
from spreeze.algorithms.choices import at_choices, best_choices, first_values
from spreeze.algorithms.critics import bootstrap
from spreeze.algorithms.kernels.operations import Adam
from spreeze.algorithms.lazy_torch import torch
from spreeze.algorithms.networks import FlatParameters, Tensors, critic_shapes, initialise, outputs_of
from spreeze.algorithms.spec import AlgorithmSpec, Figure, Recipe

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DqnSettings:
    """The settings that only DQN has."""

    double: bool = True
    """Let the network choose the next action, and its target say what that is worth: values are less too high."""
    dueling: bool = True
    """Learn what a state is worth apart from what each action adds."""


class Dqn(Algorithm):
    """One network that says what each action is worth; the policy takes the best."""

    Settings = DqnSettings
    settings: DqnSettings
    policy_kind = "greedy"
    action_kinds = ("discrete", "multi_discrete", "multi_binary")
    has_actor = False
    recipe = Recipe(n_step=3)
    figures = (Figure("critic_loss", "critic"), Figure("q_mean", "critic"), Figure("action_gap", "critic"))

    def __init__(self, spec: AlgorithmSpec) -> None:
        super().__init__(spec)
        self.choices = spec.choices
        outputs = sum(self.choices) + self.settings.dueling
        shapes = critic_shapes(spec.observation_size, 0, spec.hidden, 1, outputs=outputs * spec.atoms)
        self.critic, self.target_critic = FlatParameters(shapes, self.device), FlatParameters(shapes, self.device)
        initialise(self.critic, torch.Generator().manual_seed(spec.seed))
        self.target_critic.flat.copy_(self.critic.flat)
        self.optimisers["critic"] = Adam(self.critic.flat, spec.learning_rate)
        self._first = first_values(self.choices, self.device)

    def update(self, batch: Batch, _generator: torch.Generator | None = None) -> Terms:
        """Take a step towards the target, and move the target network."""
        with torch.no_grad():
            target = self.target(batch)
        outputs = self.outputs(self.critic.trainable, batch.observation)
        taken = at_choices(outputs, self._first + batch.action)  # (components, batch), with atoms (..., atoms)
        if self.distribution is None:
            loss, q = self.operations.squared_error(taken, target), taken.detach()
        else:
            loss, q = self.distribution.cross_entropy(taken, target), self.distribution.mean(taken.detach())
        loss = loss / len(self.choices)
        self.descend("critic", self.critic, loss)
        self.target_critic.flat.lerp_(self.critic.flat, self.tau)
        self.phase = (self.phase + 1) % self.actor_delay
        gaps = action_gaps(self.values(outputs.detach()), self.choices)
        return self._checked("critic", {"critic_loss": loss, "q_mean": q, "action_gap": gaps})

    def target(self, batch: Batch) -> Tensor:
        """y = r + discount (1 - terminated) mean_d Q'_d(s', argmax_a Q_d(s', a)), or its distribution."""
        following = self.outputs(self.target_critic.frozen, batch.next_observation)
        judged = self.outputs(self.critic.frozen, batch.next_observation) if self.settings.double else following
        chosen = at_choices(following, self._first + best_choices(self.values(judged), self.choices))
        if self.distribution is None:
            return bootstrap(batch, chosen.mean(0, keepdim=True))
        # Of several components the mixture of the distributions, whose mean is the mean of theirs.
        return self.distribution.target(chosen.softmax(-1).mean(0, keepdim=True).log(), batch)

    def outputs(self, critic: Tensors, observation: Tensor) -> Tensor:
        """Return Q_d(s, a) for all values of all components, (batch, values), or logits, (batch, values, atoms)."""
        outputs = outputs_of(critic, observation, self.operations)[0]
        if self.spec.atoms > 1:
            outputs = outputs.unflatten(-1, (-1, self.spec.atoms))
        return dueling(outputs, self.choices) if self.settings.dueling else outputs

    def values(self, outputs: Tensor) -> Tensor:
        """Return Q_d(s, a), (batch, values)."""
        return outputs if self.distribution is None else self.distribution.mean(outputs)

    def networks(self) -> list[FlatParameters]:
        """Return the network and its target."""
        return [self.critic, self.target_critic]

    def policy(self) -> dict[str, Tensor]:
        """Return the network as an actor has it: one whose last layer gives what each choice is worth."""
        actor = {name.replace("critic", "actor"): tensor[0] for name, tensor in self.critic.frozen.items()}
        for name, tensor in actor.items():
            if self.settings.dueling and name.startswith(f"actor.{len(self.spec.hidden)}."):
                # Dueling is linear in the outputs, and so in the weights of the layer that they come from.
                actor[name] = dueling(tensor.unflatten(1, (-1, self.spec.atoms)), self.choices).flatten(1)
            if name.endswith(".bias"):
                actor[name] = actor[name][0]
        if self.distribution is not None:
            actor["atoms"] = self.distribution.values
        return actor


def dueling(outputs: Tensor, choices: tuple[int, ...]) -> Tensor:
    """Return Q = V + A - mean A for each component, (rows, values), of advantages and a value, (rows, values + 1).

    With atoms, of each of them, (rows, values, atoms).     (9) of Wang et al., (1) of Tavakoli et al.
    """
    value = outputs[:, -1:]
    parts = outputs[:, :-1].split(choices, 1)
    centred = [part - part.mean(1, keepdim=True) for part in parts]
    return value + (centred[0] if len(centred) == 1 else torch.cat(centred, 1))


def action_gaps(values: Tensor, choices: tuple[int, ...]) -> Tensor:
    """Return by how much the best choice is worth more than the mean of all, (components, batch)."""
    return torch.stack([part.amax(-1) - part.mean(-1) for part in values.split(choices, -1)])
