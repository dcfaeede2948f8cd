"""Settings of earlier versions: what replaces them, and how files that have them are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_VALUE_RANGE = "use --value-range LOW HIGH"
_COMPARED = "benchmarks/ablations.py compares it with others"
RETIRED: Mapping[str, str] = {
    "transport": f"transitions always use shared memory; {_COMPARED}",
    "weights_transport": f"weights always use files; {_COMPARED}",
    "min_samplers": "the minimum is 1; use --samplers for a fixed number",
    "min_batch_size": "the minimum is 256 on a GPU and 64 on a CPU; use --batch-size for a fixed number",
    "exchange": "use --exchange-updates lock-step, or a number for free-running exchange",
    "max_lag_updates": "it is 8 times --exchange-updates",
    "value_low": _VALUE_RANGE,
    "value_high": _VALUE_RANGE,
}
"""By name, what to use instead."""


def modernise(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a file of any version under today's names. What has no equivalent is left out."""
    kept = {name: value for name, value in fields.items() if name not in RETIRED}
    if fields.get("exchange") == "lock-step":
        kept["exchange_updates"] = "lock-step"
    if "value_low" in fields or "value_high" in fields:
        ends = (fields.get("value_low", 0.0), fields.get("value_high", 0.0))
        # Equal ends were the default, of critics that have no range.
        kept.setdefault("value_range", None if ends[0] == ends[1] else ends)
    return kept
