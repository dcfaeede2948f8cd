"""Checks what `reset` and `step` of an environment return.

In: one returned value, and what its spaces say. Out: findings about it, by topic, or `Unusable`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from spreeze.channels.rejected_rows import MAX_MAGNITUDE
from spreeze.channels.spaces import Encoding
from spreeze.environments.findings import Finding, Unusable, text_of
from spreeze.environments.observations import Vectors, flatten

OLD_STEP = Finding(
    "step returns 4 values, as Gym's old interface did: observation, reward, done, info",
    "return observation, reward, terminated, truncated, info: truncated by a time limit, terminated by all else",
    is_fatal=True,
)
SPACE_FIX = "return what `observation_space` says, or correct `observation_space`"
END_FIX = "return `bool(...)`"


def split_reset(returned: Any, space: spaces.Space[Any]) -> tuple[Any, Any]:
    """Return observation and info; raise `Unusable` if there are no two values."""
    is_pair = isinstance(returned, tuple | list) and len(returned) == 2
    # An observation of two parts would be taken for observation and info.
    if not is_pair or (not isinstance(returned[1], Mapping) and _contains(space, returned)):
        raise Unusable(old_reset_result(_kind_of(returned)))
    return returned[0], returned[1]


def old_reset_result(what: str) -> Finding:
    """Return the finding about a reset that does not return two values."""
    return Finding(
        f"reset returns {what} instead of two values, as Gym's old interface did",
        "return observation, info: the second is a dict, {} where there is nothing to say",
        is_fatal=True,
    )


def split_step(returned: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Return the five values of a step; raise `Unusable` if there are not five."""
    if isinstance(returned, tuple | list) and len(returned) == 5:
        observation, reward, terminated, truncated, info = returned
        return observation, reward, terminated, truncated, info
    if isinstance(returned, tuple | list) and len(returned) == 4:
        raise Unusable(OLD_STEP)
    count = f"{len(returned)} values" if isinstance(returned, tuple | list) else _kind_of(returned)
    raise Unusable(
        Finding(
            f"step returns {count} instead of five values",
            "return observation, reward, terminated, truncated, info",
            is_fatal=True,
        )
    )


def vector_of(encoding: Encoding, observation: Any, where: str) -> Vectors:
    """Return a copy of an observation as training sees it; raise `Unusable` if it does not fit its space."""
    try:
        vector = flatten(encoding, observation)
        if vector.ndim != 1:
            raise ValueError("observation has one axis more than its space says")
    except Exception as error:
        what = str(error) if isinstance(error, ValueError) else text_of(error)
        problem = f"{where} returns what `observation_space` does not allow: {what}"
        raise Unusable(Finding(problem, SPACE_FIX, is_fatal=True)) from None
    return vector.copy()


def check_observation(space: spaces.Space[Any], observation: Any, where: str) -> Finding | None:
    """Return what differs between an observation and its space, though training can use it."""
    mismatch = next(_mismatches(space, observation, "observation"), None)
    if mismatch is None:
        return None
    what, fix = mismatch
    return Finding(f"{where} returns what `observation_space` does not allow: {what}", fix)


def check_reward(reward: Any) -> Finding | None:
    """Return what is wrong with a reward, apart from its value."""
    is_number = isinstance(reward, int | float | np.integer | np.floating)
    if is_number and not isinstance(reward, bool):
        return None
    try:
        np.fromiter([reward], np.float64, 1)  # as the steps of a training take it
        is_usable = reward is not None  # which becomes NaN
    except Exception:
        is_usable = False
    problem = f"step returns {_kind_of(reward)} as its reward"
    return Finding(problem, "return `float(reward)`, a single number", is_fatal=not is_usable)


def require_rewards(rewards: Iterable[Any]) -> None:
    """Raise `Unusable` if one of them is nothing that training could use as a number."""
    for reward in rewards:
        if (finding := check_reward(reward)) is not None and finding.is_fatal:
            raise Unusable(finding)


def check_ends(terminated: Any, truncated: Any) -> Finding | None:
    """Return what is wrong with the two values that say whether an episode has ended."""
    for name, value in (("terminated", terminated), ("truncated", truncated)):
        if isinstance(value, bool | np.bool_):
            continue
        try:
            bool(value)
            is_usable = True
        except Exception:
            is_usable = False
        return Finding(f"step returns {_kind_of(value)} as `{name}`", END_FIX, is_fatal=not is_usable)
    return None


def check_info(info: Any, where: str) -> Finding | None:
    """Return what is wrong with an info."""
    if isinstance(info, dict):
        return None
    return Finding(f"{where} returns {_kind_of(info)} as `info`", "return a dict, {} where there is nothing to say")


def unusable_number(values: NDArray[Any]) -> str:
    """Describe the first number that cannot be learned from; empty if all can be used."""
    is_bad = ~(np.abs(values) <= MAX_MAGNITUDE)  # true for NaN
    if not is_bad.any():
        return ""
    index = int(np.argmax(is_bad))
    value = values[index]
    what = "NaN" if np.isnan(value) else "infinity" if np.isinf(value) else f"a number beyond {MAX_MAGNITUDE:.0e}"
    return f"{what} at index {index}" if len(values) > 1 else what


def arrays_in(observation: Any) -> Iterator[NDArray[Any]]:
    """Yield the arrays that an observation consists of."""
    if isinstance(observation, np.ndarray):
        yield observation
    elif isinstance(observation, Mapping | tuple):
        for part in observation.values() if isinstance(observation, Mapping) else observation:
            yield from arrays_in(part)


def _mismatches(space: spaces.Space[Any], value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a value that can be flattened all the same, and how to fix it."""
    match space:
        case spaces.Box():
            yield from _box_mismatches(space, value, path)
        case spaces.Dict():
            if not isinstance(value, Mapping):
                yield f"{path} is {_kind_of(value)}, not a dict", SPACE_FIX
            elif extra := [key for key in value if key not in space.spaces]:
                yield f"{path} has the keys {extra}, which its space does not have", SPACE_FIX
            for key, part in space.items():
                yield from _mismatches(part, value[key], f"{path}[{key!r}]")
        case spaces.Tuple():
            if not isinstance(value, tuple):
                yield f"{path} is {_kind_of(value)}, not a tuple", SPACE_FIX
            elif len(value) != len(space.spaces):
                yield f"{path} has {len(value)} parts, its space {len(space.spaces)}", SPACE_FIX
            for i, part in enumerate(space.spaces):
                yield from _mismatches(part, value[i], f"{path}[{i}]")
        case _:
            if not _contains(space, value):
                yield f"{path} is {value!r} ({_kind_of(value)}), its space {space}", SPACE_FIX


def _box_mismatches(space: spaces.Box, value: Any, path: str) -> Iterator[tuple[str, str]]:
    # A scalar space takes NumPy's numbers too.
    if not isinstance(value, np.ndarray | np.generic):
        yield f"{path} is {_kind_of(value)}, not a NumPy array", f"return `np.array(..., dtype=np.{space.dtype})`"
    elif not np.can_cast(value.dtype, space.dtype):
        yield (
            f"{path} has type {value.dtype}, its space {space.dtype}",
            f"return `observation.astype(np.{space.dtype})`",
        )
    values = np.asarray(value)
    # Not a number is neither inside nor outside: another finding.
    outside = np.flatnonzero(((values < space.low) | (values > space.high)) & np.isfinite(values))
    if outside.size:
        low, high = space.low.flat[outside[0]], space.high.flat[outside[0]]
        held = f"{values.flat[outside[0]]:.6g}" + (f" at index {outside[0]}" if values.size > 1 else "")
        yield (
            f"{path} holds {held}, outside its bounds {low:.6g} to {high:.6g}",
            "correct the bounds of `observation_space`, or clip the observation",
        )


def _contains(space: spaces.Space[Any], value: Any) -> bool:
    try:
        return bool(space.contains(value))
    except Exception:  # raised by a space for a value that it did not expect
        return False


def _kind_of(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
