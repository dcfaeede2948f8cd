"""Runs `spreeze` on fewer cores, or from another start than the defaults: what its flags cannot say.

    python benchmarks/ablation/launch.py FOLDER CORES START train Pendulum-v1 ...

FOLDER: where it may remember what it finds, so that the user's own runs do not start from that. CORES: the run may
use as many, 0 for all. START: what is put in the place of the static defaults, such as samplers=4,batch_size=512.
Flags would pin these; a run that adapts is to be free to leave them.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Mapping

from spreeze.adapt import defaults
from spreeze.config.choice import Choice

KNOWN = ("samplers", "envs_per_sampler", "batch_size")


def start_text(text: str) -> str:
    parts = [part.partition("=") for part in text.split(",")]
    if not all(name in KNOWN and value.isdigit() and int(value) > 0 for name, _, value in parts):
        raise argparse.ArgumentTypeError(f"'{text}' must be like samplers=4,batch_size=512")
    return text


def start_from(start: str) -> None:
    """Let the static defaults of this process be these."""
    values = {name: int(value) for name, value in (part.split("=") for part in start.split(","))}
    choose = defaults.choose_parallelism

    def choose_start(cores: int, device: str, pinned: Mapping[str, int | float] | None = None) -> list[Choice]:
        return [
            dataclasses.replace(choice, value=values[choice.setting], reason="where this benchmark starts")
            if choice.setting in values
            else choice
            for choice in choose(cores, device, pinned)
        ]

    defaults.choose_parallelism = choose_start


if __name__ == "__main__":
    os.environ["XDG_CACHE_HOME"], cores, start = sys.argv[1:4]
    if int(cores):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])
    if start:
        start_from(start)
    sys.argv = ["spreeze", *sys.argv[4:]]
    del sys.path[:1]  # this folder is none of the run's
    from spreeze.commands.cli import main

    main()
