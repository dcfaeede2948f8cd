"""Settings that learn fast: the recipe of the algorithm, and exceptions for families of environments.

In: an algorithm's recipe, an environment and the device of the learner. Out: choices with reasons. docs/recipes.md
has the measurements behind them.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch
from typing import NamedTuple

from spreeze.config import ActionKind
from spreeze.config.choice import Choice


class Family(NamedTuple):
    """Environments that learn faster with other settings."""

    pattern: str
    """Matches their ids, with the wildcards of a shell."""
    settings: dict[str, float]
    reason: str
    device: str | None = None
    """The kind of device it was measured on, cpu or cuda; None: both."""


MANY_JOINTS = "with many joints, rewards of several steps propagate faster"
SLOW_STEPS = "steps are slow: with fewer environments, episodes end before the policy has changed much"
FEW_UPDATES = "staying upright is rewarded late, and a CPU makes few updates to propagate that"
LONG_HORIZON = "with a horizon of a hundred steps, a lunge that ends in a fall is worth more than standing"
FAMILIES: tuple[Family, ...] = (
    Family("Ant-v*", {"n_step": 3}, MANY_JOINTS),
    Family("Ant-v*", {"envs_per_sampler": 8}, SLOW_STEPS),
    Family("Humanoid-v*", {"n_step": 3}, MANY_JOINTS),
    Family("Humanoid-v*", {"envs_per_sampler": 8}, SLOW_STEPS),
    Family("Hopper-v*", {"n_step": 5}, FEW_UPDATES, "cpu"),
    Family("Hopper-v*", {"gamma": 0.995}, LONG_HORIZON, "cpu"),
    Family("Walker2d-v*", {"n_step": 5}, FEW_UPDATES, "cpu"),
    Family("Walker2d-v*", {"gamma": 0.995}, LONG_HORIZON, "cpu"),
)


BY_ACTIONS: Mapping[ActionKind, str] = {
    "continuous": "sac",
    "discrete": "dqn",
    "multi_discrete": "dqn",
    "multi_binary": "dqn",
}
"""The algorithm that --algo auto is, by the kind of the environment's actions."""


def choose_algorithm(env: str, actions: ActionKind) -> Choice:
    """Choose the algorithm for an environment's actions."""
    algo = BY_ACTIONS[actions]
    return Choice("algo", algo, f"the actions of {env} are {actions.replace('_', '-')}")


def choose_recipe(algo: str, recipe: Mapping[str, float], env: str, device: str) -> list[Choice]:
    """Choose what depends on the algorithm and the environment, the environment's choices first.

    recipe: the algorithm's defaults by name. device: the slowest one that the learner uses, such as cpu or cuda:0.
    """
    kind = device.partition(":")[0]
    choices = [
        Choice(setting, value, family.reason)
        for family in FAMILIES
        if fnmatch(env, family.pattern) and family.device in (None, kind)
        for setting, value in family.settings.items()
    ]
    return choices + [Choice(setting, value, f"as {algo} learns best") for setting, value in recipe.items()]
