"""What a run in the user's own process raises and warns of: an environment's errors and warnings, none of ours."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

from spreeze.supervision.serial import RaisedInRound


@contextlib.contextmanager
def as_it_was_raised() -> Iterator[None]:
    """Raise what an environment or an algorithm has raised in this process as itself, with its own traceback."""
    raised: Exception | None = None
    try:
        yield
    except RaisedInRound as carrier:
        raised = carrier.error
    if raised is not None:
        before = raised.__context__
        try:
            raise raised
        finally:
            raised.__context__ = before  # the carrier has no place in its traceback


@contextlib.contextmanager
def without_warnings_of_numpy() -> Iterator[None]:
    """Within the block, NumPy says nothing about numbers that overflow in Spreeze's own modules.

    For a run in the user's own process: an environment's 1e307 overflows where it becomes a float32, and is rejected,
    counted and told there. A filter costs a step nothing, `numpy.errstate` several microseconds. What the environment
    itself computes is warned of as ever.
    """
    with warnings.catch_warnings():
        for what in ("overflow", "invalid value"):
            warnings.filterwarnings("ignore", f"{what} encountered", RuntimeWarning, module=r"spreeze\.")
        yield
