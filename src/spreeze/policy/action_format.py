"""The actions of an environment as a policy file describes them.

In: the spaces of a run, or the content of a file, which may hold anything. Out: tensors and metadata, or the spaces.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.spaces import Actions, ContinuousActions, DiscreteActions
from spreeze.host.json_text import json_text

MAX_VECTOR = 2**31  # components of an observation or action; a policy file that claims more is damaged
MAX_START = 2**62  # it is used in int64

Arrays = Mapping[str, NDArray[Any]]


def describe_actions(action: Actions) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return the tensors and the metadata of a policy file."""
    if isinstance(action, DiscreteActions):
        return {}, {"action": json_text(asdict(action))}
    return {"action_low": action.low, "action_high": action.high}, {"action_shape": json_text(action.shape)}


def action_of(tensors: Arrays, metadata: Mapping[str, str]) -> Actions:
    """Return what a policy file describes; ValueError or KeyError if it is no space of actions."""
    if "action" not in metadata:
        return _continuous(tensors, json.loads(metadata["action_shape"]))
    return _discrete(json.loads(metadata["action"]))


def _continuous(tensors: Arrays, shape: Any) -> ContinuousActions:
    low, high = tensors["action_low"], tensors["action_high"]
    if not isinstance(shape, list) or math.prod(map(extent, shape)) != low.size or not low.size:
        raise ValueError(f"{low.size} bounds do not fit the shape of the actions")
    if low.ndim != 1 or low.shape != high.shape or low.dtype != high.dtype or low.dtype.kind not in "fiu":
        raise ValueError("the lower and upper bounds of the actions differ in shape or type")
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        raise ValueError("the bounds of the actions are not finite, or the lower ones exceed the upper ones")
    return ContinuousActions(low, high, tuple(shape))


def _discrete(about: Mapping[str, Any]) -> DiscreteActions:
    if about["kind"] not in ("discrete", "multi_discrete", "multi_binary"):
        raise ValueError("the actions are of an unknown kind")
    choices, start, shape = (tuple(about[name]) for name in ("choices", "start", "shape"))
    if not choices or 0 in map(extent, choices) or len(start) != len(choices):
        raise ValueError("the actions have no values to choose from")
    if sum(choices) >= MAX_VECTOR or math.prod(map(extent, shape)) != len(choices):
        raise ValueError(f"{len(choices)} components do not fit the shape of the actions")
    if any(type(first) is not int or abs(first) > MAX_START for first in start):
        raise ValueError("the first value of an action is not an integer, or too large")
    if np.dtype(about["dtype"]).kind not in "iu":
        raise ValueError("the actions are of no integer type")
    return DiscreteActions(about["kind"], choices, start, shape, about["dtype"])


def extent(value: Any) -> int:
    """Return a size that a file claims; ValueError if it is none."""
    if type(value) is not int or not 0 <= value < MAX_VECTOR:
        raise ValueError(f"{value!r:.40} is not a valid size")
    return value
