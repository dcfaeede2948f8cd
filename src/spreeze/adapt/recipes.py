"""Settings that learn fast: those of each algorithm, and what families of environments need beside them.

In: an algorithm, an environment and where the learner runs. Out: choices, with reasons. docs/recipes.md has the
measurements behind them.
"""

from __future__ import annotations

from fnmatch import fnmatch
from typing import NamedTuple

from spreeze.config.choice import Choice

ALGORITHMS: dict[str, dict[str, float]] = {
    "sac": {"gamma": 0.99, "n_step": 1, "actor_delay": 1, "exploration": 1.0, "exploration_high": 1.0},
    "td3": {"gamma": 0.99, "n_step": 1, "actor_delay": 2, "exploration": 0.1, "exploration_high": 0.4},
    "ddpg": {"gamma": 0.99, "n_step": 1, "actor_delay": 1, "exploration": 0.1, "exploration_high": 0.4},
}


class Family(NamedTuple):
    """Environments that need other settings than the rest."""

    pattern: str
    """Of their ids, as in a shell."""
    settings: dict[str, float]
    reason: str
    device: str | None = None
    """Of the learner, where it was measured on one kind alone: cpu or cuda."""


MANY_JOINTS = "rewards of several steps reach a body of many joints sooner"
SLOW_STEPS = "steps take long: fewer environments get through their episodes before the policy is another"
FEW_UPDATES = "to stay upright pays after many steps, and a CPU makes few updates to carry that back to the first"
LUNGES = "where only a hundred steps count, a lunge that ends in a fall is worth more than standing"
FAMILIES: tuple[Family, ...] = (
    Family("Ant-v*", {"n_step": 3}, MANY_JOINTS),
    Family("Ant-v*", {"envs_per_sampler": 8}, SLOW_STEPS),
    Family("Humanoid-v*", {"n_step": 3}, MANY_JOINTS),
    Family("Humanoid-v*", {"envs_per_sampler": 8}, SLOW_STEPS),
    Family("Hopper-v*", {"n_step": 5}, FEW_UPDATES, "cpu"),
    Family("Hopper-v*", {"gamma": 0.995}, LUNGES, "cpu"),
    Family("Walker2d-v*", {"n_step": 5}, FEW_UPDATES, "cpu"),
    Family("Walker2d-v*", {"gamma": 0.995}, LUNGES, "cpu"),
)


def choose_recipe(algo: str, env: str, device: str) -> list[Choice]:
    """Choose what depends on the algorithm and on the environment; what is more particular comes first.

    device: the slowest that the learner uses, such as cpu or cuda:0.
    """
    kind = device.partition(":")[0]
    choices = [
        Choice(setting, value, family.reason)
        for family in FAMILIES
        if fnmatch(env, family.pattern) and family.device in (None, kind)
        for setting, value in family.settings.items()
    ]
    return choices + [Choice(setting, value, f"as {algo} learns best") for setting, value in ALGORITHMS[algo].items()]
