"""Files that a command writes its results to."""

from __future__ import annotations

from pathlib import Path

from spreeze.errors import ConfigError


def require_writable(path: Path | None, flag: str = "--json") -> Path | None:
    """Refuse a file that cannot be written, before the work that produces its content.

    Returns its absolute path, since an environment may change the working directory.
    """
    if path is None:
        return None
    is_new = not path.exists()
    try:
        path.open("a").close()
    except OSError as error:
        raise ConfigError(
            f"{flag} {path} cannot be written ({error.strerror}): name one in a folder you may write to"
        ) from None
    if is_new:
        path.unlink()
    return path.absolute()
