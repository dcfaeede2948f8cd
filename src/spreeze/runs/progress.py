"""The state of a run apart from its learner: what a checkpoint keeps for the supervisor that resumes it.

In: numbers of a run. Out: a JSON object in the checkpoint's manifest; and back, with every number checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from spreeze.config.run_settings import RunSettings
from spreeze.errors import CheckpointError

SAMPLER_SUMS = ("episodes", "return_sum", "ring_wait_s", "ratio_wait_s")


@dataclass(frozen=True)
class Progress:
    """What the supervisor continues with."""

    asked: Mapping[str, Any]
    """The settings as the user gave them, "auto" where the run chose."""
    settings: RunSettings
    """What the adaptation has found."""
    wall_s: float
    session: int = 1
    """How often the run was started, resuming included: 1 for the first time."""
    best_return: float | None = None
    time_to_target_s: float | None = None
    evaluations_left_out: int = 0
    """How many do not count, because a return was not finite."""
    samplers: Mapping[str, float] = field(default_factory=dict)
    """Sums over all samplers the run has had, by the names of their counters."""
    environment: Mapping[str, Any] | None = None
    """The environment as `environments/description.py` describes it; None in checkpoints before 0.2."""

    def as_json(self) -> dict[str, Any]:
        """Return what goes into a manifest."""
        fields = {**asdict(self), "settings": self.settings._asdict()}
        best = self.best_return
        return {**fields, "best_return": best if best is not None and math.isfinite(best) else None}

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Progress:
        """Read the object of a manifest. Raises CheckpointError if a field is missing or wrong."""
        try:
            settings = RunSettings(**{name: _setting(name, fields["settings"][name]) for name in RunSettings._fields})
            sums = {name: _number(fields["samplers"][name]) for name in SAMPLER_SUMS}
            return cls(
                asked=dict(fields["asked"]),
                settings=settings,
                wall_s=_number(fields["wall_s"]),
                session=int(_number(fields["session"] if "session" in fields else fields["sitting"])),  # before 0.2
                best_return=_number_or_none(fields["best_return"]),
                time_to_target_s=_number_or_none(fields["time_to_target_s"]),
                evaluations_left_out=int(_number(fields.get("evaluations_left_out", 0))),  # not before 0.2
                samplers=sums,
                environment=_object_or_none(fields.get("environment")),
            )
        except (KeyError, TypeError, ValueError, OverflowError):
            raise CheckpointError("the checkpoint lacks the state of the run, or holds a damaged one") from None


def _setting(name: str, value: Any) -> Any:
    if type(value) is not (bool if name == "pinned" else int) or value < 0:
        raise ValueError(f"{name} is {value!r}")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def _number_or_none(value: Any) -> float | None:
    return None if value is None else _number(value)


def _object_or_none(value: Any) -> Mapping[str, Any] | None:
    return None if value is None else dict(value)
