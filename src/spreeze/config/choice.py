"""An automatic choice: a setting, its value and the reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    """One setting, what was chosen for it, and why."""

    setting: str
    value: int | float | str
    reason: str
