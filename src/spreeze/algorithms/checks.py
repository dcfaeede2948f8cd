"""What is easily got wrong in the steps of an algorithm, refused in words before it trains something else.

No check reads a value of a tensor: that would wait for the GPU, and could not be recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from spreeze.algorithms.kernels.operations import Adam
from spreeze.algorithms.lazy_torch import torch
from spreeze.algorithms.networks import FlatParameters
from spreeze.algorithms.spec import Figure

if TYPE_CHECKING:
    from torch import Tensor


def check_terms(kind: str, side: Literal["critic", "actor"], terms: Any, figures: Sequence[Figure]) -> None:
    """Raise unless a step returned the figures that are declared for it: others would be shown as 0."""
    step = f"update_{side} of {kind}"
    if not isinstance(terms, Mapping):
        what = "nothing" if terms is None else f"a {type(terms).__name__}"
        raise TypeError(f"{step} returned {what}: return its figures by name, like {{'critic_loss': loss}}")
    sides = {figure.name: figure.side for figure in figures}
    for name, term in terms.items():
        if name not in sides:
            raise ValueError(
                f'{step} returned \'{name}\', which is not declared: add Figure("{name}", "{side}") to `figures`'
            )
        if sides[name] != side:
            raise ValueError(f"{step} returned '{name}', which `figures` declares for update_{sides[name]}")
        if not isinstance(term, torch.Tensor):
            raise TypeError(
                f"{step} returned a {type(term).__name__} as '{name}': return the tensor itself, without item() or "
                "float(), which would wait for the GPU"
            )
    if missing := [name for name, declared in sides.items() if declared == side and name not in terms]:
        raise ValueError(f"{step} did not return '{missing[0]}', which `figures` declares for it")


def check_descent(optimisers: Mapping[str, Any], name: str, network: FlatParameters, loss: Tensor) -> None:
    """Raise unless a step down this loss moves this network."""
    optimiser = optimisers.get(name)
    if optimiser is None:
        raise ValueError(f"there is no optimiser '{name}': self.optimisers has {', '.join(optimisers)}")
    _require_adam(name, optimiser)
    if optimiser.flat is not network.flat:
        raise ValueError(f"self.optimisers['{name}'] is of another network than the one that is to descend")
    if loss.numel() != 1:
        raise ValueError(f"the loss of '{name}' has shape {tuple(loss.shape)}: reduce it to one number, by its mean")
    if not loss.requires_grad:
        raise ValueError(f"the loss of '{name}' has no gradient: compute it from .trainable parameters, not .frozen")


def check_target(target: Tensor, rows: int, atoms: int | None) -> None:
    """Raise unless a target has the shape of what the critics give; another one would be broadcast."""
    expected, shape = (rows,) if atoms is None else (rows, atoms), tuple(target.shape)
    if shape == expected:
        return
    if atoms is None:
        raise ValueError(f"the target has shape {shape}, and has to have (batch,) = {expected}")
    raise ValueError(
        f"the target has shape {shape}, and with --atoms has to be a distribution, {expected}, as `critic_target` "
        "gives it: an algorithm that computes targets itself is trained without --atoms"
    )


def check_bonus(bonus: Tensor, rows: int) -> None:
    """Raise unless a bonus has one number for each row."""
    if tuple(bonus.shape) != (rows,):
        raise ValueError(f"the bonus has shape {tuple(bonus.shape)}, and has to have (batch,) = ({rows},)")


def check_actor(policy_kind: str, needed: str, instead: str) -> None:
    """Raise unless the actor gives what a function needs."""
    if policy_kind != needed:
        raise TypeError(f"the actor is {policy_kind}, as `policy_kind` says: {instead}, or declare {needed}")


def check_networks(algorithm: Any) -> None:
    """Raise unless checkpoints hold each network that an algorithm has made, and all optimisers are ours."""
    kind = type(algorithm).__name__
    if not hasattr(algorithm, "optimisers"):
        raise TypeError(f"__init__ of {kind} has to begin with super().__init__(spec)")
    for name, optimiser in algorithm.optimisers.items():
        _require_adam(name, optimiser)
    kept = {id(network) for network in algorithm.networks()}
    for name, value in vars(algorithm).items():
        if isinstance(value, FlatParameters) and id(value) not in kept:
            raise ValueError(
                f"networks() of {kind} does not return self.{name}, so checkpoints would not hold it: "
                f"return [*super().networks(), self.{name}]"
            )


def _require_adam(name: str, optimiser: Any) -> None:
    if not isinstance(optimiser, Adam):
        kind = f"{type(optimiser).__module__}.{type(optimiser).__name__}"
        raise TypeError(
            f"self.optimisers['{name}'] is a {kind}: make it an Adam of spreeze.algorithms, "
            "Adam(network.flat, spec.learning_rate)"
        )
