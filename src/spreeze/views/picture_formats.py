"""The file formats of pictures that can be drawn."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from spreeze.errors import ConfigError

FORMATS = (".png", ".svg", ".pdf")


def require_drawable(path: Path, flag: str, instead: str = "") -> None:
    """Refuse a picture that cannot be drawn, before any measurement. instead: an alternative, for the message."""
    if path.suffix not in FORMATS:
        raise ConfigError(f"{flag} {path} must end in {', '.join(FORMATS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError(f'{flag} needs matplotlib: pip install "spreeze[plot]"{instead}')
