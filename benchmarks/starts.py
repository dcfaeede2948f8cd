"""Another start than the static defaults: flags would pin it, and a run that adapts is to be free to leave it.

In: a text such as samplers=4,batch_size=512. Out: trainings of this process that start from there.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping

from spreeze.adapt import defaults
from spreeze.config.choice import Choice

KNOWN = ("samplers", "envs_per_sampler", "batch_size")


def start_text(text: str) -> str:
    """Check what the command line says."""
    parts = [part.partition("=") for part in text.split(",")]
    if not all(name in KNOWN and value.isdigit() and int(value) > 0 for name, _, value in parts):
        raise argparse.ArgumentTypeError(f"'{text}' must be like samplers=4,batch_size=512")
    return text


def start_from(start: str) -> None:
    """Let the static defaults be these."""
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
