"""What is easily got wrong in an algorithm: each mistake is refused in words, by the update that has it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from making import make
from torch import Tensor

from spreeze.algorithms import ActorCritic, AlgorithmSpec, Batch, Figure, FlatParameters, Terms
from spreeze.algorithms.checks import check_networks
from spreeze.algorithms.ddpg import Ddpg
from spreeze.algorithms.sac import Sac
from spreeze.algorithms.td3 import Td3

ROWS = 8


def batch_of(rows: int = ROWS) -> Batch:
    numbers, zeros = torch.randn(rows, 3), torch.zeros(rows)
    return Batch(numbers, torch.rand(rows, 1) * 2 - 1, zeros, numbers + 1, zeros, zeros + 0.9)


def update(kind: type[ActorCritic], **shared: Any) -> Terms:
    terms: Terms = make(kind, 3, 1, **shared).update(batch_of())
    return terms


def actor_step(changed: Callable[[dict[str, Tensor]], Any], declared: tuple[Figure, ...] = ()) -> type[ActorCritic]:
    """Return a TD3 whose actor's step returns something else, and that declares more figures."""

    class Mistaken(Td3):
        figures = (*Td3.figures, *declared)

        def update_actor(self, batch: Batch, noise: Tensor) -> Terms:
            returned: Terms = changed(dict(super().update_actor(batch, noise)))
            return returned

    return Mistaken


def critic_step(step: Callable[[Any, Batch, Tensor], Any], base: type[ActorCritic] = Ddpg) -> type[ActorCritic]:
    """Return an algorithm with another step of its critics."""

    class Mistaken(base):  # type: ignore[misc,valid-type]
        def update_critic(self, batch: Batch, noise: Tensor) -> Terms:
            step(self, batch, noise)
            return {}

    return Mistaken


# --- what a step returns -----------------------------------------------------------------------------------------

RETURNED: dict[str, tuple[Callable[[dict[str, Tensor]], Any], tuple[Figure, ...]]] = {
    "update_actor of Mistaken returned nothing: return its figures by name": (lambda _: None, ()),
    "update_actor of Mistaken returned a Tensor: return": (lambda terms: terms["actor_loss"], ()),
    'update_actor of Mistaken returned \'more\', which is not declared: add Figure("more", "actor") to': (
        lambda terms: terms | {"more": terms["actor_loss"]},
        (),
    ),
    "update_actor of Mistaken returned 'q_mean', which `figures` declares for update_critic": (
        lambda terms: terms | {"q_mean": terms["actor_loss"]},
        (),
    ),
    "update_actor of Mistaken returned a float as 'actor_loss': return the tensor itself": (
        lambda terms: {name: float(term.detach()) for name, term in terms.items()},
        (),
    ),
    "update_actor of Mistaken did not return 'more', which `figures` declares for it": (
        lambda terms: terms,
        (Figure("more", "actor"),),
    ),
}


@pytest.mark.parametrize("said", RETURNED)
def test_a_step_has_to_return_the_figures_that_are_declared_for_it(said: str) -> None:
    """One that is missing, or of the other step, would be shown as 0 by one side of two."""
    with pytest.raises((ValueError, TypeError), match=f"^{re.escape(said)}"):
        update(actor_step(*RETURNED[said]), actor_delay=1)


def test_figures_that_are_declared_are_returned() -> None:
    kind = actor_step(lambda terms: terms | {"more": terms["actor_loss"]}, (Figure("more", "actor"),))
    assert "more" in update(kind)


# --- descending --------------------------------------------------------------------------------------------------


def loss_of(algorithm: Any, batch: Batch, **also: Any) -> Tensor:
    loss: Tensor = algorithm.values(algorithm.critic.trainable, batch.observation, batch.action).square().mean(**also)
    return loss


def with_torchs_adam(algorithm: Any, batch: Batch, _: Tensor) -> None:
    algorithm.optimisers["critic"] = torch.optim.SGD([algorithm.critic.flat], lr=0.1)
    algorithm.descend("critic", algorithm.critic, loss_of(algorithm, batch))


def without_gradient(algorithm: Any, batch: Batch, _: Tensor) -> None:
    q = algorithm.values(algorithm.critic.frozen, batch.observation, batch.action)
    algorithm.descend("critic", algorithm.critic, q.mean())


DESCENTS: dict[str, Callable[[Any, Batch, Tensor], None]] = {
    "there is no optimiser 'critics': self.optimisers has actor, critic": lambda own, batch, _: own.descend(
        "critics", own.critic, loss_of(own, batch)
    ),
    "self.optimisers['critic'] is of another network than": lambda own, batch, _: own.descend(
        "critic", own.actor, loss_of(own, batch)
    ),
    "self.optimisers['critic'] is a torch.optim.sgd.SGD: make it an Adam of spreeze.algorithms": with_torchs_adam,
    "the loss of 'critic' has shape (8,): reduce it to one number": lambda own, batch, _: own.descend(
        "critic", own.critic, loss_of(own, batch, dim=0)
    ),
    "the loss of 'critic' has no gradient: compute it from .trainable": without_gradient,
}


@pytest.mark.parametrize("said", DESCENTS)
def test_a_step_that_would_move_something_else_is_refused(said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{re.escape(said)}"):
        update(critic_step(DESCENTS[said]))


# --- targets and actors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(ROWS, 1), (1,), (), (1, ROWS)])
def test_a_target_of_another_shape_is_not_broadcast(shape: tuple[int, ...]) -> None:
    """With one critic, a target of (batch, 1) would give (batch, batch) differences, and a loss that looks right."""
    kind = critic_step(lambda own, batch, _: own.critic_loss(batch, torch.zeros(shape)))
    with pytest.raises(ValueError, match=re.escape(f"the target has shape {shape}, and has to have (batch,) = (8,)")):
        update(kind)


def test_a_target_that_is_no_distribution_is_refused_with_atoms() -> None:
    kind = critic_step(lambda own, batch, _: own.critic_loss(batch, batch.reward))
    with pytest.raises(ValueError, match=r"has to be a distribution, \(8, 21\), .* trained without --atoms"):
        update(kind, atoms=21, value_range=(-1.0, 1.0))


def test_a_bonus_of_another_shape_is_not_broadcast() -> None:
    kind = critic_step(lambda own, batch, noise: own.critic_target(batch, noise, bonus=noise))
    with pytest.raises(ValueError, match=re.escape("the bonus has shape (8, 1), and has to have (batch,) = (8,)")):
        update(kind)


@pytest.mark.parametrize(
    ("base", "method", "said"),
    [
        (Sac, "deterministic_action", "the actor is gaussian, .* use `sample_action`, or declare deterministic"),
        (Ddpg, "sample_action", "the actor is deterministic, .* use `deterministic_action`, or declare gaussian"),
    ],
)
def test_an_actor_of_the_other_kind_is_refused(base: type[ActorCritic], method: str, said: str) -> None:
    arguments = ("noise",) if method == "sample_action" else ()
    for parameters in ("trainable", "frozen"):

        def step(own: Any, batch: Batch, noise: Tensor, of: str = parameters) -> None:
            getattr(own, method)(getattr(own.actor, of), batch.observation, *[noise for _ in arguments])

        with pytest.raises(TypeError, match=said):
            update(critic_step(step, base))


# --- networks ----------------------------------------------------------------------------------------------------


class Further(Ddpg):
    """With one network more, which is listed."""

    def __init__(self, spec: AlgorithmSpec) -> None:
        super().__init__(spec)
        self.further = FlatParameters({"weight": (3,)}, self.device)

    def networks(self) -> list[FlatParameters]:
        return [*super().networks(), self.further]


def test_each_network_has_to_be_in_checkpoints() -> None:
    check_networks(make(Further, 3, 1))

    class Forgotten(Further):
        networks = Ddpg.networks

    with pytest.raises(ValueError, match=r"networks\(\) of Forgotten does not return self.further"):
        check_networks(make(Forgotten, 3, 1))


def test_a_constructor_that_leaves_out_the_others() -> None:
    class Hasty(Ddpg):
        def __init__(self, spec: AlgorithmSpec) -> None:
            self.spec = spec

    with pytest.raises(TypeError, match=r"__init__ of Hasty has to begin with super\(\).__init__\(spec\)"):
        check_networks(make(Hasty, 3, 1))
