"""Runs `spreeze` on fewer cores, or from another start than the defaults: what its flags cannot say.

    python benchmarks/ablation/launch.py CORES START train Pendulum-v1 ...

CORES: the run may use as many, 0 for all. START: what is put in the place of the static defaults, such as
samplers=4,batch_size=512. Flags would pin these; a run that adapts is to be free to leave them.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping

from spreeze.adapt import defaults
from spreeze.adapt.defaults import Choice


def start_from(start: str) -> None:
    """Let the static defaults be these."""
    values = {name: int(value) for name, value in (part.split("=") for part in start.split(","))}
    choose = defaults.choose_parallelism

    def choose_start(cores: int, device: str, pinned: Mapping[str, int | float] | None = None) -> list[Choice]:
        return [
            dataclasses.replace(choice, value=values[choice.setting], reason="where this ablation starts")
            if choice.setting in values
            else choice
            for choice in choose(cores, device, pinned)
        ]

    defaults.choose_parallelism = choose_start


if __name__ == "__main__":
    if cores := int(sys.argv[1]):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    if sys.argv[2]:
        start_from(sys.argv[2])
    sys.argv = ["spreeze", *sys.argv[3:]]
    sys.path.pop(0)  # this folder is none of the run's
    from spreeze.cli import main

    main()
