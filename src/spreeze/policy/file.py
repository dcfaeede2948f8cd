"""A policy that acts with NumPy, in the evaluation, the viewer and the user's own program.

In: a weights file. Out: actions. Needs neither torch nor Gymnasium.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.spaces import Actions, Spaces
from spreeze.channels.weights import read_weights
from spreeze.environments.actions import env_actions
from spreeze.environments.observations import flatten
from spreeze.errors import RunFolderError
from spreeze.host.files import reason_of
from spreeze.policy.action_format import action_of, extent
from spreeze.policy.actor import Actor, Array, layer_count, make_actor, outputs_of, policy_kind
from spreeze.policy.which import Which, find_weights


class Policy:
    """A trained policy: `policy(observation)` returns the action to take, in the environment's own range.

    It reuses its buffers: each thread needs a policy of its own.
    """

    def __init__(self, tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
        self._tensors, self._metadata = tensors, metadata
        action = action_of(tensors, metadata)
        self._actions, self._is_integer = env_actions(action), action.kind == "discrete"
        self._observation = json.loads(metadata["observation"])
        self.spaces = Spaces(self._observation, action)
        """Those of the environment that it was trained in."""
        self.version = int(metadata.get("version", 0))
        self._actor: tuple[int, Actor] | None = None

    def __call__(self, observation: Any) -> NDArray[Any] | int:
        """Return the action for one observation, or the actions for a batch of them.

        A discrete action is an integer, as `env.step` takes it.
        """
        vectors = flatten(self._observation, observation)
        rows = np.atleast_2d(vectors)
        actions = self._actions.to_env(self.actor(len(rows)).mean(rows))
        if vectors.ndim > 1:
            return actions
        return int(actions[0]) if self._is_integer else actions[0]

    def actor(self, rows: int) -> Actor:
        """Return the actor for this many observations at a time; the last one used is kept."""
        if self._actor is None or self._actor[0] != rows:
            self._actor = (rows, make_actor(self._tensors, self._metadata, rows))
        return self._actor[1]


def load_policy(path: str | Path, run: Path | None = None, which: Which = None) -> Policy:
    """Load a policy from a run folder (which.py says which of its versions) or from a weights file.

    No code of the file is run, and its content is checked: RunFolderError says in one line what is wrong with it.
    run: the run folder that a weights file was found in; no link in it is followed.
    """
    root = Path(path) if Path(path).is_dir() else run
    file = find_weights(Path(path), which) if run is None else Path(path)
    try:
        tensors, metadata = read_weights(file, root=root)
        action = action_of(tensors, metadata)
        _check_network(tensors, metadata, _checked_size(json.loads(metadata["observation"])), action)
        return Policy(tensors, metadata)
    except FileNotFoundError:
        raise RunFolderError(f"there is no policy file {file}") from None
    except RunFolderError as error:
        raise RunFolderError(f"{file} cannot be used: {error}") from None
    except Exception as error:
        raise RunFolderError(f"{file} is not a Spreeze policy, or is damaged: {reason_of(error)}") from error


def _check_network(
    tensors: Mapping[str, Array], metadata: Mapping[str, str], observation_size: int, action: Actions
) -> None:
    width = observation_size
    for i in range(layer_count(tensors)):
        weight, bias = tensors[f"actor.{i}.weight"], tensors[f"actor.{i}.bias"]
        if weight.ndim != 2 or weight.shape[0] != width or bias.shape != weight.shape[1:]:
            raise ValueError(f"layer {i} has shape {weight.shape} after a width of {width}")
        if weight.dtype != np.float32 or bias.dtype != np.float32:
            raise ValueError(f"layer {i} is of type {weight.dtype}, not float32")
        if not weight.size or not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            raise ValueError(f"layer {i} holds a NaN or an infinity, or nothing")
        width = weight.shape[1]
    if not layer_count(tensors):
        raise ValueError("the network has no layers")
    kind = policy_kind(tensors, metadata)
    if width != outputs_of(kind, action, _atoms_of(tensors)):
        raise ValueError(f"{width} outputs do not fit a {kind} policy with {action.size} action components")


def _atoms_of(tensors: Mapping[str, Array]) -> int:
    """Return of how many atoms each choice has a distribution; 1 where the network gives a single number."""
    atoms = tensors.get("atoms")
    if atoms is None:
        return 1
    if atoms.ndim != 1 or atoms.dtype != np.float32 or not atoms.size or not np.isfinite(atoms).all():
        raise ValueError("the atoms of its values are no finite numbers")
    return atoms.size


def _checked_size(encoding: Any) -> int:
    """Return the length of an observation as a vector; the encoding comes from a file and may hold anything."""
    kind = encoding["kind"]
    if kind in ("box", "multi_binary"):
        size = math.prod(map(extent, encoding["shape"]))
    elif kind == "discrete":
        size = extent(encoding["n"])
        if type(encoding["start"]) is not int or abs(encoding["start"]) > 2**62:  # it is used in int64
            raise ValueError("the start of a discrete observation is not an integer, or too large")
    elif kind == "multi_discrete":
        size = sum(map(extent, encoding["nvec"]))
        if list(map(extent, encoding["shape"])) != [len(encoding["nvec"])]:
            raise ValueError("the shape of a multi-discrete observation does not fit its components")
    elif kind == "dict":
        size = sum(map(_checked_size, encoding["parts"].values()))
    elif kind == "tuple":
        size = sum(map(_checked_size, encoding["parts"]))
    else:
        raise ValueError("the observations are of an unknown kind")
    return extent(size)
