"""Whether an algorithm fits the rest of a run: its names, and the spaces that it takes.

In: the class. Out: nothing, or an error that says what to change in its file.
"""

from __future__ import annotations

from spreeze.algorithms.algorithm import Algorithm
from spreeze.channels.metrics import MAX_FIGURES
from spreeze.channels.spaces import Spaces
from spreeze.config import Config
from spreeze.config.fields import flag, leaf_types
from spreeze.config.own_settings import own_types
from spreeze.errors import ConfigError
from spreeze.runs.records import MAX_NAME, MEASURED


def require_own_names(algorithm: type[Algorithm], algo: str) -> None:
    """Raise if a figure or a setting has a name that Spreeze uses for something else."""
    figures = [figure.name for figure in algorithm.figures]
    if len(figures) > MAX_FIGURES:
        raise ConfigError(f"--algo {algo} declares {len(figures)} figures: there is room for {MAX_FIGURES}")
    if long := [name for name in figures if len(name) > MAX_NAME]:
        raise ConfigError(f"--algo {algo}: the figure '{long[0]}' has more than {MAX_NAME} letters: shorten its name")
    for what, names, taken in (
        ("figure", figures, MEASURED),
        ("setting", list(own_types(algorithm)), leaf_types(Config).keys()),
    ):
        if clashes := [name for name in names if name in taken]:
            raise ConfigError(f"--algo {algo}: the {what} '{clashes[0]}' has a name that Spreeze uses: rename it")


def require_fitting_settings(algorithm: type[Algorithm], config: Config) -> None:
    """Raise if a setting was given that means nothing to this algorithm."""
    algo, learning, sampling = config.algo, config.learning, config.sampling
    if not algorithm.has_actor:
        if learning.layer_norm:
            raise ConfigError(f"--layer-norm is for critics next to an actor, and {algo} has none: leave it out")
        if learning.actor_delay not in ("auto", 1):
            raise ConfigError(f"--actor-delay {learning.actor_delay}: {algo} has no actor: leave it out")
    if algorithm.policy_kind == "greedy":
        for name in ("exploration", "exploration_high"):
            value = getattr(sampling, name)
            if value != "auto" and value > 1:
                raise ConfigError(f"{flag(name)} {value} is the probability of a random choice: give 1 or less")


def require_takes(algorithm: type[Algorithm], algo: str, spaces: Spaces, env_name: str) -> None:
    """Raise if an algorithm does not take the environment's observations or actions."""
    algorithm = algorithm.for_actions(spaces.action_kind)
    for what, kind, taken in (
        ("actions", spaces.action_kind, algorithm.action_kinds),
        ("observations", spaces.observation_kind, algorithm.observation_kinds),
    ):
        if kind not in taken:
            raise ConfigError(
                f"--algo {algo} takes {' or '.join(taken)} {what}, and those of {env_name} are {kind}: "
                "use another algorithm, --algo auto for one that takes them"
            )
