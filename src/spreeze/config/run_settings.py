"""The settings of a run that may change while it is under way."""

from __future__ import annotations

from typing import NamedTuple


class RunSettings(NamedTuple):
    """The settings that a run under way may change."""

    samplers: int
    envs_per_sampler: int
    batch_size: int
    learner_threads: int
    pinned: bool = False
    """Whether learner and samplers are kept on cores of their own."""
