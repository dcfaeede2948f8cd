"""The settings of a run that may change while it goes on."""

from __future__ import annotations

from typing import NamedTuple


class RunSettings(NamedTuple):
    """What can be changed while a run goes on."""

    samplers: int
    envs_per_sampler: int
    batch_size: int
    learner_threads: int
    pinned: bool = False
    """Whether learner and samplers are kept on cores of their own."""
