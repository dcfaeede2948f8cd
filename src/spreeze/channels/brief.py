"""The brief: everything that a process needs to know at its start, sent once through a pipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from spreeze.channels import Channels
from spreeze.channels.spaces import Spaces
from spreeze.config import Config, PolicyKind
from spreeze.config.env_spec import EnvSpec

Role = Literal[
    "environment", "sampler", "learner", "split_learner", "evaluator", "viewer", "dashboard", "recorder", "gateway"
]
ROLE_NAMES: Mapping[Role, str] = {
    "environment": "environment",
    "sampler": "sampler",
    "learner": "learner",
    "split_learner": "learner",
    "evaluator": "evaluator",
    "viewer": "viewer",
    "dashboard": "dashboard",
    "recorder": "recorder",
    "gateway": "gateway",
}


@dataclass(frozen=True)
class VideoOrder:
    """A video to make."""

    weights: Path
    target: Path
    seed: int
    max_work_s: float
    """It ends early when making it takes longer."""
    is_awaited: bool = False
    """Whether the run waits for it, and not for its cores."""


@dataclass(frozen=True)
class Brief:
    """Everything that a process needs to know."""

    index: int
    """Which of the samplers this is; 0 for the others."""
    slot: int
    """The index of its heartbeat in the control channel."""
    config: Config
    env: EnvSpec
    spaces: Spaces
    run_dir: Path
    started_at: float
    """`time.monotonic()` at the start of the command."""
    channels: Channels
    algorithm: bytes = b""
    """The class of an algorithm from elsewhere, pickled: only learners open it, its module may import torch."""
    policy_kind: PolicyKind = "gaussian"
    """Which policy samplers act with, and so how they explore."""
    generation: int = 0
    """How many samplers had the same index before. Other processes: 0 for those that begin a run, more for those that
    replace others or resume a run."""
    checkpoints: tuple[int, ...] = ()
    """Numbers of the valid checkpoints, newest first: a learner resumes from the first and keeps the others valid."""
    without_replay_until: int = 0
    """A learner restores no rows from checkpoints up to this number: --without-replay."""
    video: VideoOrder | None = None
    """The video that a recorder makes."""


@dataclass(frozen=True)
class EnvironmentBrief:
    """What the process that describes the environment needs to know: all else depends on what it finds."""

    env: EnvSpec


def name_of(role: Role, index: int) -> str:
    """Return the name of a process in messages: learner, actor learner, sampler 3."""
    if role == "split_learner":
        return ("critic learner", "actor learner")[index]
    return f"{ROLE_NAMES[role]} {index}" if role == "sampler" else ROLE_NAMES[role]
