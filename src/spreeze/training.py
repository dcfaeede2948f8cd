"""What `spreeze.train` does: an environment by name or by callable, and settings by keyword."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spreeze.config import Config
from spreeze.envs import CALLABLE_MARK, EnvSpec
from spreeze.errors import ConfigError
from spreeze.supervisor import Result, supervise
from spreeze.terminal import make_display


def train_from_python(env: str | Callable[..., Any] | Config, fields: dict[str, Any], started_at: float) -> Result:
    """Train from a script or a notebook. Ctrl-C ends the run in order and then interrupts the script too."""
    factory: Callable[..., Any] | None = None
    if isinstance(env, Config):
        config = env
    elif isinstance(env, str):
        config = Config(env)
    elif callable(env):
        factory = env
        config = Config(f"{getattr(env, '__name__', type(env).__name__)}{CALLABLE_MARK}")
    else:
        raise ConfigError(
            f"env must be an id, a callable that returns an environment or a Config, not {type(env).__name__}"
        )
    config = config.replace(**fields)
    result = supervise(config, EnvSpec.of(config, factory), started_at, make_display(config))
    if result.stop_reason in ("interrupted", "terminated"):
        raise KeyboardInterrupt
    return result
