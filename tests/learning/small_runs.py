"""What the runs of probes share: one process, small and quiet, with evaluations that are seldom and long."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import spreeze
from spreeze.algorithms.spec import AlgorithmSpec
from spreeze.config.own_settings import find_algorithm
from spreeze.environments.spaces import spaces_of
from spreeze.learning.normalisation import Normaliser
from spreeze.learning.restore import restore
from spreeze.runs.checkpoint_format import newest_checkpoints

CPU = torch.device("cpu")
SMALL: Mapping[str, Any] = {
    "serial": True,
    "quiet": True,
    "tensorboard": False,
    "device": "cpu",
    "envs_per_sampler": 8,
    "tau": 0.1,
    "eval_episodes": 50,  # seldom: an evaluation comes after as many steps as the last one had
}


def last_policy(run: Path) -> Any:
    """Return the last version of the policy."""
    return spreeze.load_policy(max((run / "weights").glob("policy-*")))


def last_state(env: Any, run: Path) -> tuple[Any, Normaliser | None]:
    """Return the algorithm as it is in the last checkpoint, on the CPU, and what normalises its observations."""
    config, spaces = spreeze.Config.from_flat(json.loads((run / "config.json").read_text())), spaces_of(env, "probe")
    kind, learning = find_algorithm(config.algo).for_actions(spaces.action_kind), config.learning
    algorithm = kind(
        AlgorithmSpec(
            spaces.observation_size,
            spaces.action_size,
            CPU,
            choices=spaces.choices,
            settings=kind.Settings(**config.own),
            hidden=learning.hidden,
            layer_norm=learning.layer_norm,
            atoms=learning.atoms,
            value_range=learning.value_range,
        )
    )
    normaliser = Normaliser(spaces.observation_size, CPU) if learning.normalise_observations else None
    with torch.random.fork_rng(devices=[]):  # what a resumed run would continue with
        folder, role = run / "checkpoint", learning.learner_roles[0]
        restore(folder, newest_checkpoints(folder)[0], algorithm, None, normaliser, role=role)
    return algorithm, normaliser
