"""What an algorithm declares of itself, and what it is made from. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from spreeze.algorithms.kernels.operations import PLAIN, Operations

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Auto = Literal["auto"]
ActionKind = Literal["continuous", "discrete", "multi_discrete", "multi_binary"]
ObservationKind = Literal["vector", "image", "mixed"]
PolicyKind = Literal["gaussian", "deterministic", "greedy", "categorical"]
LearnerRole = Literal["all", "critic", "actor"]
"""Of a learner: all of it, or one side of two."""


OUTPUTS_PER_ACTION: Mapping[PolicyKind, int] = {"gaussian": 2, "deterministic": 1, "greedy": 1, "categorical": 1}
"""Numbers that an actor gives for each component of an action: mean and log standard deviation, or the action. Where
actions are choices, for each value of each component: what it is worth, or its log probability."""
EXPLORATION: Mapping[PolicyKind, tuple[float, float]] = {
    "gaussian": (1.0, 1.0),
    "deterministic": (0.1, 0.4),
    # 0.4^8 to 0.4 (Horgan et al. 2018).
    "greedy": (0.00066, 0.4),
    "categorical": (1.0, 1.0),
}
"""Lowest and highest noise of the samplers: a factor on the policy's own standard deviation, the noise's standard
deviation, the probability of a random choice, or a factor on the noise with which the policy draws."""


@dataclass(frozen=True)
class NoSettings:
    """The settings of an algorithm that has none of its own."""


@dataclass(frozen=True)
class Recipe:
    """Defaults with which an algorithm learns well. Flags, and what docs/recipes.md lists, override them."""

    gamma: float = 0.99
    n_step: int = 1
    actor_delay: int = 1
    exploration: float | None = None
    """None: what EXPLORATION has for the kind of policy."""
    exploration_high: float | None = None
    """None: likewise."""

    def settings(self, policy_kind: PolicyKind) -> dict[str, float]:
        """Return all defaults by the names of the settings."""
        low, high = EXPLORATION[policy_kind]
        return {"exploration": low, "exploration_high": high} | {
            name: value for name, value in asdict(self).items() if value is not None
        }


@dataclass(frozen=True)
class Figure:
    """A number that an algorithm reports: a loss, or what explains one.

    Its name is its key in metrics.jsonl and its title in the terminal, on the page and in the trackers. A run whose
    figures named `..._loss` are not finite has diverged, and goes back to its last checkpoint.
    """

    name: str
    side: Literal["critic", "actor"]
    """The step of an update that computes it: `update_critic` or `update_actor`."""
    read: Callable[[Tensor], Tensor] | None = None
    """From what the step returns to one number, called only when somebody looks. None: the mean."""


@dataclass(frozen=True)
class AlgorithmSpec:
    """What an algorithm is made from: sizes, settings, device and role."""

    observation_size: int
    action_size: int
    device: torch.device
    choices: tuple[int, ...] = ()
    """How many values each component of a discrete action has; empty for continuous ones."""
    settings: Any = NoSettings()
    """An instance of the algorithm's own `Settings`."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of actor and critics."""
    learning_rate: float = 1e-3
    tau: float = 0.01
    """Share by which targets move towards what they follow."""
    actor_delay: int = 1
    """Updates of the critics for each of the actor."""
    layer_norm: bool = False
    atoms: int = 1
    """Of distributional critics; 1 for critics with a single value."""
    value_range: tuple[float, float] | None = None
    """Of distributional critics."""
    seed: int = 0
    role: LearnerRole = "all"
    """Which steps it makes: on two devices, the other side makes the others and sends its parameters."""
    operations: Operations = PLAIN

    @property
    def updates_critic(self) -> bool:
        """Whether it makes the critics' step."""
        return self.role != "actor"

    @property
    def updates_actor(self) -> bool:
        """Whether it makes the actor's step."""
        return self.role != "critic"
