"""The counters of a learner that a checkpoint holds."""

from __future__ import annotations

from spreeze.config import LearnerRole
from spreeze.errors import CheckpointError
from spreeze.runs.checkpoint_format import Manifest

# Counters of a learner that a checkpoint holds: of the rows, which both sides of a split learner have in common, and
# of its work. Those of the actor's side have a prefix.
ROWS = ("rows_consumed", "rows_stored", "rows_rejected")
TIMES = ("ratio_wait_s", "ingest_s", "publish_s", "report_s", "exchange_s")
WORK = ("updates", "update_frames", "exchanged_bytes", *TIMES)
ACTOR = "actor."


def counters_of(manifest: Manifest | None, part: LearnerRole) -> dict[str, float]:
    """Return what a learner's counters stood at; 0 for one that begins anew."""
    if manifest is None:
        return dict.fromkeys((*ROWS, *WORK), 0)
    prefix = ACTOR if part == "actor" else ""
    try:
        return {
            **{name: manifest.counters[name] for name in ROWS},
            **{name: manifest.counters[prefix + name] for name in WORK},
        }
    except KeyError as missing:
        raise CheckpointError(f"checkpoint {manifest.number} does not say its {missing}") from None
