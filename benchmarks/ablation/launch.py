"""Runs a training on fewer cores, from other defaults or with another transport: what flags cannot say.

    python benchmarks/ablation/launch.py FOLDER CORES START TRANSPORT train Pendulum-v1 ...

FOLDER: a cache of its own, so that the user's own runs remember nothing of it. CORES: how many it may use, 0 for all.
START: what replaces the static defaults, such as samplers=4,batch_size=512; flags would pin these. TRANSPORT: queue,
for transitions through queues; memory, for weights through shared memory; empty for Spreeze's own.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
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


def use_transport(name: str) -> None:
    """Let the runs of this process use another transport. Imports by the names that a run's processes know too."""
    from memory_weights import MemoryWeightsChannel
    from queue_channel import QueueChannel

    from spreeze.channels.transport import Transport
    from spreeze.supervision import supervisor

    transports = {"queue": Transport(QueueChannel), "memory": Transport(make_weights=MemoryWeightsChannel)}
    supervisor.supervise = functools.partial(supervisor.supervise, transport=transports[name])


if __name__ == "__main__":
    os.environ["XDG_CACHE_HOME"], cores, start, transport = sys.argv[1:5]
    if int(cores):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])
    if start:
        start_from(start)
    folder = sys.path.pop(0)  # none of a usual run's
    if transport:
        sys.path.append(folder)
        use_transport(transport)
    sys.argv = ["spreeze", *sys.argv[5:]]
    from spreeze.commands.cli import main

    main()
