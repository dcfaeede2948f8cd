"""Whether the same seed and the same actions give the same episode, and if not, why.

In: what an environment gave the first time and again, and what a fresh instance gave. Out: a finding, if they differ.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from spreeze.environments.findings import Finding
from spreeze.environments.rehearsal import Track, layers_of

RUNNING_STATISTICS = ("NormalizeObservation", "NormalizeReward")


def judge(
    first: Track, again: Track, fresh: Track, fresh_again: Track, env: gymnasium.Env[Any, Any]
) -> Finding | None:
    """Compare tracks of the same seed and actions, of one instance and of a fresh one; some may be empty."""
    between_instances, on_repetition = first_difference(first, fresh), first_difference(first, again)
    if not between_instances and not on_repetition:
        return None
    if between_instances and again and not on_repetition:
        return Finding(
            "two instances do not play the same episode with the same seed and the same actions, while each of them "
            f"repeats its own: their constructors draw at random (first difference: {between_instances})",
            "draw in `reset`, from `self.np_random`, after `super().reset(seed=seed)`",
        )
    # Chance would hardly make the second instance forget in the same way as the first.
    if not between_instances and fresh_again and not first_difference(again, fresh_again):
        return _leak(on_repetition, env)
    return Finding(
        "the same seed and the same actions do not give the same episode "
        f"(first difference: {between_instances or on_repetition})",
        "draw at random from `self.np_random` only, after `super().reset(seed=seed)`, and use no clock",
    )


def first_difference(one: Track, other: Track) -> str:
    """Return where two tracks differ first; empty if they do not as far as both go."""
    for (what, values), (_, others) in zip(one, other, strict=False):
        differs = ~((values == others) | ((values != values) & (others != others)))  # NaN equals itself
        if differs.any():
            index = int(np.argmax(differs))
            return f"{what}: {values[index]:g} and {others[index]:g}" if values.dtype != np.bool_ else what
    return ""


def _leak(difference: str, env: gymnasium.Env[Any, Any]) -> Finding:
    wrapper = next((name for layer in layers_of(env) if (name := type(layer).__name__) in RUNNING_STATISTICS), "")
    fix = "set all of the state in `reset`"
    if wrapper == "NormalizeObservation":
        fix = "leave this wrapper out, and train with --normalise-observations, which all processes share"
    elif wrapper:
        fix = "leave this wrapper out: every sampler would scale rewards by statistics of its own"
    return Finding(
        "something is kept from one episode to the next"
        + (f", the running statistics of {wrapper}" if wrapper else "")
        + ": with the same seed and the same actions, an instance that has played before differs from a fresh one "
        f"(first difference: {difference})",
        fix,
    )
