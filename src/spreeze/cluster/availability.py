"""Says whether Ray is there, without importing it."""

from __future__ import annotations

from importlib.util import find_spec

from spreeze.errors import ConfigError


def require_ray() -> None:
    """Raise unless Ray is installed."""
    if find_spec("ray") is None:
        raise ConfigError('--cluster needs Ray: run `pip install "spreeze[ray]"`, on every machine')
