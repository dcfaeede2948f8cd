"""Compares an environment with the one that a policy was trained in, before the policy plays in it.

In: the spaces in the policy's file, and those of an environment. Out: an error of one line where they differ, because
the same output of the policy would be another action.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from spreeze.channels.spaces import ContinuousActions, DiscreteActions, Spaces
from spreeze.errors import RunFolderError
from spreeze.host.json_text import json_text

MAX_LETTERS = 100  # of a value in the error's line
Change = tuple[str, Any, Any]


def require_fit(trained: Spaces, made: Spaces, env: str, run: Path) -> None:
    """Raise unless an environment has the actions and observations that a policy of a run was trained with."""
    for what, before, now in _changes(trained, made):
        raise RunFolderError(
            f"{env} is not the environment that the policy of '{run}' was trained in: {what} was {_say(before)} and "
            f"is {_say(now)} now; set env and env_kwargs in {run / 'config.json'} back, or use the environment's "
            "code as it was"
        )


def _changes(trained: Spaces, made: Spaces) -> Iterator[Change]:
    before, now = trained.action, made.action
    if isinstance(before, ContinuousActions) and isinstance(now, ContinuousActions):
        yield from _changes_of_bounds(before, now)
    elif isinstance(before, DiscreteActions) and isinstance(now, DiscreteActions):
        for name in ("kind", "shape", "choices", "start"):
            one, other = getattr(before, name), getattr(now, name)
            if one != other and (not isinstance(one, tuple) or list(one) != list(other)):
                yield f"action {name}", one, other
    else:
        yield "action space", before.kind, now.kind
    if json_text(trained.observation) != json_text(made.observation):
        yield "observation", trained.observation, made.observation


def _changes_of_bounds(before: ContinuousActions, now: ContinuousActions) -> Iterator[Change]:
    if tuple(before.shape) != tuple(now.shape):
        yield "action shape", before.shape, now.shape
        return
    for name in ("low", "high"):
        # Libraries differ in the type of the same bounds.
        one, other = (np.asarray(getattr(each, name), np.float32) for each in (before, now))
        for i in (one != other).nonzero()[0][:1].tolist():
            yield f"action {name}" + (f"[{i}]" if one.size > 1 else ""), one[i].item(), other[i].item()


def _say(value: Any) -> str:
    """Return a value in a few words. It may be a stranger's: JSON has no character that moves a cursor."""
    text = json_text(value)
    return text if len(text) <= MAX_LETTERS else f"{text[:MAX_LETTERS]}..."
