"""The counters of a learner that a checkpoint holds."""

from __future__ import annotations

from spreeze.config import LearnerRole
from spreeze.errors import CheckpointError
from spreeze.runs.checkpoint_format import Manifest

# ROWS are the same on both sides of a split learner. Each side has its own WORK; ACTOR is the prefix of the actor's.
ROWS = ("rows_consumed", "rows_stored", "rows_rejected")
TIMES = ("ratio_wait_s", "ingest_s", "publish_s", "report_s", "exchange_s")
WORK = ("updates", "update_frames", "exchanged_bytes", *TIMES)
ACTOR = "actor."


def counters_of(manifest: Manifest | None, role: LearnerRole) -> dict[str, float]:
    """Return a learner's counters as the checkpoint has them; 0 without a checkpoint."""
    if manifest is None:
        return dict.fromkeys((*ROWS, *WORK), 0)
    prefix = ACTOR if role == "actor" else ""
    try:
        return {
            **{name: manifest.counters[name] for name in ROWS},
            **{name: manifest.counters[prefix + name] for name in WORK},
        }
    except KeyError as missing:
        raise CheckpointError(f"checkpoint {manifest.number} lacks the counter {missing}") from None
