"""JSON as every file, message and page of ours has it: one that any reader can read.

JSON has no NaN and no infinity, which `json.dumps` would write all the same. Here `null` stands for them: a number
that is not known.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any


def json_text(
    value: Any, indent: int | None = None, is_compact: bool = False, default: Callable[[Any], Any] | None = None
) -> str:
    """Return a value as JSON, without a newline at its end. default: makes a text of what JSON has no form for."""
    separators = (",", ":") if is_compact else None
    return json.dumps(finite(value), indent=indent, separators=separators, default=default, allow_nan=False)


def json_file(value: Mapping[str, Any]) -> bytes:
    """Return a JSON file that people may read too."""
    return json_text(value, indent=2).encode() + b"\n"


def exact_json_text(value: Any) -> str:
    """Return a value as JSON, or raise TypeError or ValueError where that would change it: for what a user gives."""
    return json.dumps(value, allow_nan=False)


def finite(value: Any) -> Any:
    """Replace NaN and infinities by None, in everything that JSON can hold."""
    if isinstance(value, Mapping):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
