"""What the runs of probes share: one process, small and quiet, with evaluations that are seldom and long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SMALL: Mapping[str, Any] = {
    "serial": True,
    "quiet": True,
    "tensorboard": False,
    "device": "cpu",
    "envs_per_sampler": 8,
    "tau": 0.1,
    "eval_episodes": 50,  # seldom: an evaluation comes after as many steps as the last one had
}
