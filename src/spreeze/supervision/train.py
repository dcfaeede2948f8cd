"""What `spreeze.train` does: an environment by name or by callable, and settings by keyword."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from spreeze.config import SHOWN, Config
from spreeze.config.env_spec import CALLABLE_MARK, EnvSpec
from spreeze.config.own_settings import give_algorithm
from spreeze.errors import ConfigError
from spreeze.runs.result import Result
from spreeze.supervision.resume import LIMITS, ResumeRequest, resume_run
from spreeze.supervision.supervisor import supervise
from spreeze.views.terminal import make_display


def train_from_python(
    env: str | Callable[..., Any] | Config, fields: dict[str, Any], started_at: float, gateway: str
) -> Result:
    """Train from a script or a notebook. Ctrl-C ends the run in order and then interrupts the script too.

    gateway: the program of the gateway to other machines, for --cluster.
    """
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
    config = config.replace(**{name: _named(value) if name == "algo" else value for name, value in fields.items()})
    result = supervise(config, EnvSpec.of(config, factory), started_at, make_display(config), gateway=gateway)
    return _unless_interrupted(result)


def resume_from_python(
    run: Path,
    factory: Callable[..., Any] | None,
    algo: Any,
    without_replay: bool,
    settings: dict[str, Any],
    started_at: float,
    cluster: str | None,
    gateway: str,
) -> Result:
    """Continue a run from a script or a notebook."""
    unknown = sorted(set(settings) - {*LIMITS, *SHOWN})
    if unknown:
        known = ", ".join((*LIMITS, *SHOWN))
        raise ConfigError(f"'{unknown[0]}' cannot be changed when a run is resumed: only {known} can")
    request = ResumeRequest(
        run,
        {name: value for name, value in settings.items() if name in LIMITS},
        {name: value for name, value in settings.items() if name in SHOWN},
        factory=factory,
        algo=_named(algo),
        without_replay=without_replay,
        cluster=cluster,
        gateway=gateway,
    )
    return _unless_interrupted(resume_run(request, started_at))


def _named(algo: Any) -> Any:
    if algo is not None and not isinstance(algo, str | type):
        raise ConfigError(f"algo must be a name, or a class that inherits from ActorCritic, not {algo!r}")
    return give_algorithm(algo) if isinstance(algo, type) else algo


def _unless_interrupted(result: Result) -> Result:
    if result.stop_reason in ("interrupted", "terminated"):
        raise KeyboardInterrupt
    return result
