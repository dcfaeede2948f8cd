"""Imports of modules that users name, as with --env-module and --algo."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from spreeze.errors import UsageError, one_line


def import_named(module: str, flag: str, failed: type[UsageError]) -> ModuleType:
    """Import a module, also from the current folder; raise what `failed` makes of one line."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # after everything else: a file here must not take the place of a library
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise failed(
            f"{flag}: there is no module '{error.name}': install the package, or run where it can be imported"
        ) from None
    except (Exception, SystemExit) as error:
        raise failed(f"{flag}: importing '{module}' raised {type(error).__name__}: {one_line(error)}") from error
