"""What a class has to declare to be an algorithm: what is missing or of another kind is refused in one line."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Any

from spreeze.algorithms.actor_critic import ActorCritic
from spreeze.algorithms.algorithm import Algorithm
from spreeze.algorithms.spec import OUTPUTS_PER_ACTION, Figure, Recipe
from spreeze.config.fields import describe_type, leaf_types
from spreeze.errors import ConfigError

SIDES = ("critic", "actor")
TAKES = {"__init__": ("spec",), "update_critic": ("batch", "noise"), "update_actor": ("batch", "noise")}
"""What Spreeze calls the methods of an algorithm with."""


def check_algorithm(found: Any, algo: str) -> type[Algorithm]:
    """Raise unless this is a class that declares what an algorithm has to."""
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise ConfigError(f"--algo {algo} is no algorithm: it must be a class that inherits from ActorCritic")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise ConfigError(f"--algo {algo} does not define {missing}: see docs/algorithms/your-own.md")
    for name in ("figures", "policy_kind"):
        if not hasattr(found, name):
            raise ConfigError(f"--algo {algo} does not declare {name}: see docs/algorithms/your-own.md")
    if found.policy_kind not in OUTPUTS_PER_ACTION:
        kinds = " or ".join(OUTPUTS_PER_ACTION)
        raise ConfigError(f"--algo {algo} declares the policy_kind {found.policy_kind!r}: it must be {kinds}")
    critics: Any = found.critics
    if type(critics) is not int or critics < 1:
        raise ConfigError(f"--algo {algo} declares {critics!r} critics: it must be a whole number above 0")
    if not isinstance(found.recipe, Recipe):
        raise ConfigError(f"--algo {algo}: its recipe must be a Recipe, like Recipe(actor_delay=2)")
    _require_settings(found.Settings, algo)
    _require_figures(found.figures, algo)
    for name, arguments in (TAKES if issubclass(found, ActorCritic) else {"__init__": ("spec",)}).items():
        _require_callable(found, name, arguments, algo)
    return found


def _require_settings(settings: Any, algo: str) -> None:
    """Raise unless a class of settings can become flags: a frozen dataclass, with a plain type and a default each."""
    if not dataclasses.is_dataclass(settings):
        raise ConfigError(f"--algo {algo}: its Settings must be a dataclass")
    if not getattr(settings, "__dataclass_params__").frozen:  # noqa: B009
        raise ConfigError(f"--algo {algo}: its Settings must be frozen: @dataclass(frozen=True)")
    for own in dataclasses.fields(settings):
        if own.default is dataclasses.MISSING and own.default_factory is dataclasses.MISSING:
            raise ConfigError(f"--algo {algo}: its setting '{own.name}' needs a default")
        try:
            describe_type(leaf_types(settings)[own.name])
        except (NameError, TypeError, KeyError, IndexError):
            raise ConfigError(
                f"--algo {algo}: its setting '{own.name}' cannot be a flag: its type must be bool, int, float, str, "
                "Literal[...], tuple[int, ...], or several with |"
            ) from None


def _require_figures(figures: Any, algo: str) -> None:
    """Raise unless each figure has a name that can be a key, and a step that computes it."""
    if not isinstance(figures, Sequence) or not all(isinstance(figure, Figure) for figure in figures):
        raise ConfigError(
            f'--algo {algo}: its figures must be a tuple of Figure, like (Figure("critic_loss", "critic"),)'
        )
    names = [figure.name for figure in figures]
    if not names or len(set(names)) < len(names) or not all(map(str.isidentifier, names)):
        shown = ", ".join(names) or "none"
        raise ConfigError(
            f"--algo {algo} declares the figures {shown}: each needs a name of its own, like critic_loss"
        )
    for figure in figures:
        if figure.side not in SIDES:
            raise ConfigError(
                f"--algo {algo}: the figure '{figure.name}' has the side {figure.side!r}: it must be "
                f"{' or '.join(SIDES)}, for the step that returns it"
            )


def _require_callable(found: type[Algorithm], name: str, arguments: tuple[str, ...], algo: str) -> None:
    """Raise unless a method can be called as Spreeze does."""
    signature = inspect.signature(getattr(found, name))
    try:
        signature.bind("self", *arguments)
    except TypeError:
        raise ConfigError(
            f"--algo {algo}: its {name}{signature} is called with {' and '.join(arguments)}: write "
            f"`def {name}(self, {', '.join(arguments)})`"
        ) from None
