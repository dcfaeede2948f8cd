"""Metrics, from every process to the supervisor: counters in shared memory.

Writers: each record has one, the process that it belongs to. While that process is not at work the supervisor
writes to it too: it sets the counters when a run is resumed, clears `is_steady` when it restarts a learner, and
corrects `env_steps` and `policy_published_at` of a sampler that has ended and may have been killed between a row
and its count. Readers: the supervisor; samplers and learner read each other's counters to keep the ratio of updates
to environment steps.
Guaranteed: a number is never torn (aligned 8 bytes). Counts and sums only rise while their process is at work. They
may fall when a learner starts from a checkpoint, because it sets its own to those of the checkpoint, and when the
supervisor corrects those of a sampler. Two numbers of a record may be from slightly different moments.
When it is full: cannot be; a number is overwritten in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.memory import MakeSegment, SharedSegment

MAX_SAMPLERS = 256
MAX_FIGURES = 32
KEPT_STEPS = 4096  # of a clock: its sampler makes so many only while the supervisor has been stopped for long
"""Numbers that an algorithm reports, in the order in which it declares them."""

SAMPLER = np.dtype(
    [
        ("env_steps", "i8"),
        ("episodes", "i8"),
        ("return_sum", "f8"),
        ("ring_wait_s", "f8"),
        ("ratio_wait_s", "f8"),
        ("policy_published_at", "f8"),
        ("first_step_at", "f8"),
    ]
)
CLOCK = np.dtype(
    [
        ("steps", "i8"),
        ("late_steps", "i8"),
        ("longest_s", "f8"),
        ("waits_for_person", "i8"),
        ("lateness_s", "f8", (KEPT_STEPS,)),
    ]
)
# Of the one sampler of a run with --realtime. steps: those with a deadline. lateness_s: how long after its deadline
# each of the newest steps has started, as a ring. longest_s: the most of all.
LEARNER = np.dtype(
    [
        ("rows_consumed", "i8"),
        ("rows_stored", "i8"),
        ("rows_rejected", "i8"),
        ("steps_offset", "i8"),
        ("steps_ahead", "i8"),
        ("rejected_column", "i8"),
        ("rejected_as", "i8"),
        ("replay_rows", "i8"),
        ("updates", "i8"),
        ("update_frames", "i8"),
        ("batch_size", "i8"),
        ("batch_limit", "i8"),
        ("learner_threads", "i8"),
        ("is_steady", "i8"),
        ("first_update_at", "f8"),
        ("ratio_wait_s", "f8"),
        ("ingest_s", "f8"),
        ("publish_s", "f8"),
        ("report_s", "f8"),
        ("exchange_s", "f8"),
        ("exchanged_bytes", "i8"),
        ("others_updates", "i8"),
        ("figures", "f8", (MAX_FIGURES,)),
    ]
)
# steps_offset: to be added to the samplers' environment steps, because the learner was restarted from a checkpoint or
# the run was resumed from one.
# steps_ahead: how much further ahead of the updates samplers may be, because rows that were lost are collected again.
# rejected_column, rejected_as: what was wrong with the first row that was rejected (intake.py).
# others_updates: the other side's updates, in the parameters that this side of a split learner has of it.
# batch_limit: the largest batch that fits the device, once one did not. is_steady: whether the learner has chosen its
# compute mode, and uses what was ordered.

_LAYOUT = np.dtype(
    [("learner", LEARNER), ("actor", LEARNER), ("samplers", SAMPLER, (MAX_SAMPLERS,)), ("clock", CLOCK)]
)


class MetricsChannel:
    """The counters of all processes of a run."""

    def __init__(self, make_segment: MakeSegment = SharedSegment) -> None:
        self._segment = make_segment("metrics", _LAYOUT.itemsize)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a child has to inherit."""
        return self._segment.descriptors

    def close(self) -> None:
        """Close the descriptor."""
        self._segment.close()

    @property
    def learner(self) -> NDArray[Any]:
        """The learner's record, as an array of one."""
        record: NDArray[Any] = self._segment.array(_LAYOUT, (1,))["learner"]
        return record

    @property
    def actor(self) -> NDArray[Any]:
        """The record of the actor's side, where the learner is split; the critics' side has the learner's."""
        record: NDArray[Any] = self._segment.array(_LAYOUT, (1,))["actor"]
        return record

    @property
    def clock(self) -> NDArray[Any]:
        """The record of the clock that steps are started by, as an array of one."""
        record: NDArray[Any] = self._segment.array(_LAYOUT, (1,))["clock"]
        return record

    @property
    def samplers(self) -> NDArray[Any]:
        """The samplers' records, by index."""
        records: NDArray[Any] = self._segment.array(_LAYOUT, (1,))["samplers"][0]
        return records
