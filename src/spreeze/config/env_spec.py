"""Which environment was asked for.

In: a config, and perhaps a callable. Out: an `EnvSpec`, which every process that plays gets.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from spreeze.config.config import Config
from spreeze.config.groups import Backend

if TYPE_CHECKING:
    import gymnasium

# Ends the recorded name of an environment that a callable made: it cannot be made again from its name.
CALLABLE_MARK = "()"


@dataclass(frozen=True)
class EnvSpec:
    """What to make: an id that Gymnasium or EnvPool knows, or a callable that returns an environment."""

    name: str
    modules: tuple[str, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    max_episode_steps: int | None = None
    factory: Callable[..., gymnasium.Env[Any, Any]] | None = None
    backend: Backend = "gymnasium"
    has_threads: bool = False
    """Whether each is stepped in a thread of its own, side by side with others."""
    hang_s: float = math.inf
    """After how long in one call such an environment hangs."""
    is_realtime: bool = False
    """Whether it is one real robot: it is made once at a time, not tried out, and always closed."""

    @classmethod
    def of(cls, config: Config, factory: Callable[..., gymnasium.Env[Any, Any]] | None = None) -> EnvSpec:
        """Return the environment of a config."""
        environment = config.environment
        kwargs = json.loads(environment.env_kwargs)
        spec = cls(config.env, environment.env_module, kwargs, environment.max_episode_steps, factory)
        return spec.stepped_as(config)

    def with_backend(self, backend: Backend) -> EnvSpec:
        """Return the same, stepped by another."""
        return replace(self, backend=backend)

    def stepped_as(self, config: Config) -> EnvSpec:
        """Return the same, stepped as a config says."""
        environment = config.environment
        return replace(
            self,
            backend=environment.backend,
            has_threads=environment.env_threads == "yes",
            hang_s=config.sampling.hang_s,
            is_realtime=config.sampling.realtime is not None,
        )
