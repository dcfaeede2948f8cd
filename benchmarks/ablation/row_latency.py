"""How long a row takes from the step that made it to the learner's pool: real samplers, channels and learner.

    python benchmarks/ablation/row_latency.py '{"transport": "shm", "samplers": 2, ...}'

The environment stamps its observations (stamped_env.py). The learner runs in this process, with its updates, as in a
training; when rows have entered its replay, their stamps are read. Nothing is added to the product.
Out: a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import stamped_env
from numpy.typing import NDArray
from queue_channel import QueueChannel

from spreeze.adapt.plan import plan_memory, plan_processes
from spreeze.channels import Channels
from spreeze.channels.brief import Brief
from spreeze.channels.control import MessageWriter
from spreeze.channels.spaces import Spaces
from spreeze.channels.transitions import RowLayout, Rows
from spreeze.channels.transport import Transport
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.facts import find_spaces
from spreeze.host.hardware import this_machine
from spreeze.supervision import launch
from spreeze.supervision.allocation import allocate_channels

TRANSPORTS = {"shm": Transport(), "queue": Transport(QueueChannel)}
START_LIMIT_S = 60.0
SETTLE_UPDATES = 50


def main() -> None:
    asked: dict[str, Any] = json.loads(sys.argv[1])
    began_at = time.monotonic()
    kwargs = {"began_at": began_at, **{name: asked[name] for name in ("observation_size", "action_size")}}
    config = Config(stamped_env.ENV_ID).replace(
        env_module=(stamped_env.__name__,),
        env_kwargs=json.dumps(kwargs),
        samplers=asked["samplers"],
        device=asked["device"],
        split="no",
        min_updates_per_step=0.0,
        checkpoint_interval_s=0.0,
        replay_rows=asked["replay_rows"],
        learner_threads=1,
    )
    env = EnvSpec.of(config)
    spaces = find_spaces(env)
    machine = this_machine()
    layout = RowLayout.of(spaces)
    config = plan_memory(plan_processes(config, machine), layout, machine).config
    with tempfile.TemporaryDirectory() as folder:
        channels = TRANSPORTS[asked["transport"]].make_channels(int(config.sampling.samplers), 1, Path(folder))
        allocate_channels(channels, config, spaces)
        latencies_s = follow_rows(config, env, spaces, channels, Path(folder), began_at, asked["seconds"])
    figures = {
        "row_latency_ms": 1000 * float(np.median(latencies_s)),
        "row_latency_p99_ms": 1000 * float(np.quantile(latencies_s, 0.99)),
        "rows_followed": len(latencies_s),
    }
    print(json.dumps(figures))


def follow_rows(
    config: Config, env: EnvSpec, spaces: Spaces, channels: Channels, folder: Path, began_at: float, seconds: float
) -> NDArray[np.float64]:
    """Learn from samplers for a while; return the seconds that each row took."""
    from spreeze.learning.learner import Learner  # torch: after the environment was looked at

    count = int(config.sampling.samplers)
    envs = count * int(config.sampling.envs_per_sampler)
    channels.control.order(int(config.learning.batch_size), 0, rings=count, envs_at_work=envs)
    null = os.open(os.devnull, os.O_WRONLY)

    def spec(index: int, slot: int) -> Brief:
        return Brief(index, slot, config, env, spaces, folder, began_at, channels)

    samplers = [launch.start("sampler", i, i + 1, channels, folder / f"{i}.log", threads=1) for i in range(count)]
    try:
        for i, sampler in enumerate(samplers):
            sampler.send_brief(spec(i, i + 1))
        learner = Learner(spec(0, 0), MessageWriter(null))
        # What the step has led to was made at its end.
        stamp = RowLayout.of(spaces).next_observation.start
        return _watch_pool(learner, channels, samplers, stamp, began_at, seconds)
    finally:
        channels.control.stop()
        for sampler in samplers:
            sampler.kill()
            sampler.close()
        channels.close()
        os.close(null)


def _watch_pool(
    learner: Any, channels: Channels, samplers: list[launch.Child], stamp: int, began_at: float, seconds: float
) -> NDArray[np.float64]:
    found: list[NDArray[np.float64]] = []
    add: Callable[[Rows], None] = learner._replay.add
    counted_from = float("inf")

    def add_and_look(rows: Rows) -> None:
        add(rows)
        made_s = rows[:, stamp].astype(np.float64) + rows[:, stamp + 1]
        found.append(time.monotonic() - began_at - made_s[made_s >= counted_from])

    learner._replay.add = add_and_look
    guard = time.monotonic() + START_LIMIT_S
    while channels.metrics.learner["updates"][0] < SETTLE_UPDATES:
        learner.turn()
        for sampler in samplers:
            for message in sampler.messages.read():
                if message["kind"] == "error":
                    sys.exit(message["traceback"])
        if time.monotonic() > guard:
            sys.exit(f"{SETTLE_UPDATES} updates were not made within {START_LIMIT_S:.0f} s")
    counted_from = time.monotonic() - began_at
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        learner.turn()
    return np.concatenate(found)


if __name__ == "__main__":
    main()
