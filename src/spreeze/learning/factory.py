"""Makes what a learner consists of, as the config asks for it and as far as the device's memory allows."""

from __future__ import annotations

import pickle

import torch

from spreeze.algorithms.algorithm import Algorithm
from spreeze.algorithms.checks import check_networks
from spreeze.algorithms.spec import AlgorithmSpec
from spreeze.channels.brief import Brief
from spreeze.channels.control import RecordEvent
from spreeze.channels.transitions import RowLayout
from spreeze.config import Config, LearnerRole, LearningConfig
from spreeze.config.own_settings import find_algorithm
from spreeze.learning.checkpoint_writer import CheckpointWriter
from spreeze.learning.learning_rate import learning_rate_for
from spreeze.learning.normalisation import Normaliser
from spreeze.learning.replay import Replay
from spreeze.learning.restore import StartingPoint


def open_device(config: Config, role: LearnerRole) -> torch.device:
    """Return the learner's device, made the current one, and seed the random numbers of PyTorch."""
    device = torch.device(config.learning.device_of(role))
    if device.type == "cuda":
        torch.cuda.set_device(device.index or 0)  # streams, events and kernels are those of the current device
    torch.manual_seed(config.seed)
    return device


def make_algorithm(brief: Brief, device: torch.device, role: LearnerRole) -> Algorithm:
    """Return the untrained algorithm."""
    learning = brief.config.learning
    named = _from_supervisor(brief.algorithm) if brief.algorithm else find_algorithm(brief.config.algo)
    algorithm = named.for_actions(brief.spaces.action_kind)
    made: Algorithm = algorithm(
        AlgorithmSpec(
            observation_size=brief.spaces.observation_size,
            action_size=brief.spaces.action_size,
            choices=brief.spaces.choices,
            device=device,
            settings=algorithm.Settings(**brief.config.own),
            hidden=learning.hidden,
            learning_rate=learning_rate_for(learning, int(learning.batch_size)),
            tau=float(learning.tau),
            actor_delay=int(learning.actor_delay),
            layer_norm=learning.layer_norm,
            atoms=learning.atoms,
            value_range=learning.value_range,
            seed=brief.config.seed,
            role=role,
        )
    )
    check_networks(made)
    return made


def _from_supervisor(pickled: bytes) -> type[Algorithm]:
    found: type[Algorithm] = pickle.loads(pickled)  # noqa: S301 (our own supervisor's bytes, never those of a file)
    return found


def make_replay(
    layout: RowLayout,
    learning: LearningConfig,
    device: torch.device,
    normaliser: Normaliser | None,
    record_event: RecordEvent,
) -> Replay:
    """Return the empty replay: as large as planned, or halved until it fits."""
    planned = rows = int(learning.replay_rows)
    while True:
        try:
            return Replay(layout, rows, device, normaliser)
        except torch.OutOfMemoryError:
            if rows // 2 < int(learning.batch_size):
                raise
            rows //= 2
            record_event("warning", f"out of GPU memory: the replay holds {rows} transitions instead of {planned}")


def make_checkpoint_writer(
    brief: Brief,
    role: LearnerRole,
    algorithm: Algorithm,
    replay: Replay,
    normaliser: Normaliser | None,
    start: StartingPoint,
) -> CheckpointWriter | None:
    """Return what writes checkpoints; None if there are to be none."""
    checkpoints, folder = brief.config.checkpoints, brief.run_dir / "checkpoint"
    if not checkpoints.checkpoint_interval_s:
        return None
    # Both sides of a split learner hold the same rows: one of them saves them.
    saved_replay = replay if checkpoints.checkpoint_replay and role != "actor" else None
    return CheckpointWriter(
        folder, algorithm, saved_replay, normaliser, start.rows, after=start.checkpoint, role=role
    )
