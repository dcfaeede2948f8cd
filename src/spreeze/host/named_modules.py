"""Imports of modules that users name, as with --env-module and --algo."""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType

from spreeze.errors import UsageError, one_line

# Lines of these say where in a library an import failed, not what to correct.
_LIBRARIES = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), str(Path(__file__).parents[1]), "<")


def import_named(module: str, flag: str, failed: type[UsageError]) -> ModuleType:
    """Import a module, also from the current folder; raise what `failed` makes of one line."""
    if module.endswith(".py") or os.sep in module:
        raise failed(
            f"{flag}: '{module}' is a file: name its module, {Path(module).stem}, and run in its folder, or add that "
            "to PYTHONPATH"
        )
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # after everything else: a file here must not take the place of a library
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        is_asked_for = error.name is None or f"{module}.".startswith(f"{error.name}.")
        by_whom = "" if is_asked_for else f", which '{module}' imports{_place_of(error)}"
        raise failed(
            f"{flag}: there is no module '{error.name}'{by_whom}: "
            "install the package, or run where it can be imported"
        ) from None
    except (Exception, SystemExit) as error:
        raise failed(
            f"{flag}: importing '{module}' raised {type(error).__name__}: {one_line(error)}{_place_of(error)}"
        ) from error


def _place_of(error: BaseException) -> str:
    """Return the last line of the user's own code that an exception came through, or nothing."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_LIBRARIES)]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
