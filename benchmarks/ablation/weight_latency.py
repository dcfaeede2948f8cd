"""How long a publication of weights takes, and how soon they are in use: real channels, policies and processes.

    python benchmarks/ablation/weight_latency.py '{"transport": "file", "readers": 1, ...}'

This process publishes a policy of the task's size as the learner does. Readers act with it over and over, as samplers
do, and look for a newer one before each pass; environments are left out. Latency is from the stamp that a version
gets when its publication begins to the moment it is ready to act with. Out: a line of JSON.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from memory_weights import MemoryWeightsChannel

from spreeze.channels.weights import WeightsChannel
from spreeze.policy.actor import make_actor, random_actor

READER_LIMIT_S = 60.0
SETTLE_VERSIONS = 5  # the first ones find nothing in any cache


def main() -> None:
    asked: dict[str, Any] = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        channel = {"file": WeightsChannel, "shm": MemoryWeightsChannel}[asked["transport"]](Path(folder))
        observations, actions = asked["observation_size"], asked["action_size"]
        tensors = {
            **random_actor(observations, actions, tuple(asked["hidden"]), seed=0),
            "action_low": -np.ones(actions, np.float32),
            "action_high": np.ones(actions, np.float32),
        }
        channel.allocate(sum(tensor.nbytes for tensor in tensors.values()))
        versions = SETTLE_VERSIONS + max(1, int(asked["seconds"] / asked["interval_s"]))
        readers = [start_reader(channel, versions, observations, actions) for _ in range(asked["readers"])]
        published_s = publish(channel, tensors, versions, asked["interval_s"])
        if not all(reader.poll(READER_LIMIT_S) for reader in readers):
            sys.exit(f"a reader did not see the last version within {READER_LIMIT_S:.0f} s")
        used_s = [s for reader in readers for s in reader.recv()]
    figures = {
        "publish_ms": 1000 * float(np.median(published_s[SETTLE_VERSIONS:])),
        "weight_latency_ms": 1000 * float(np.median(used_s)),
        "weight_latency_p99_ms": 1000 * float(np.quantile(used_s, 0.99)),
        "versions_followed": len(used_s),
    }
    print(json.dumps(figures))


def publish(channel: WeightsChannel, tensors: dict[str, Any], versions: int, interval_s: float) -> list[float]:
    writer, spent_s = channel.writer(), []
    due_at = time.monotonic()
    for number in range(versions):
        time.sleep(max(0.0, due_at - time.monotonic()))  # the learner's updates, between two publications
        due_at += interval_s
        began = time.monotonic()
        writer.publish(tensors, {"policy": "gaussian", "updates": str(number)})
        spent_s.append(time.monotonic() - began)
    return spent_s


def start_reader(channel: WeightsChannel, versions: int, observations: int, actions: int) -> Connection:
    """Start a reader and wait until it looks."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    context.Process(target=read, args=(channel, versions, observations, actions, theirs), daemon=True).start()
    ours.recv()
    return ours


def read(channel: WeightsChannel, versions: int, observations: int, actions: int, answers: Connection) -> None:
    """Act with the newest policy until the last version is in use; answer with the latencies."""
    reader, actor, used_s = channel.reader(), None, []
    envs = 16
    rows, noise = np.zeros((envs, observations), np.float32), np.zeros((envs, actions), np.float32)
    answers.send("ready")
    version = 0
    while version < versions:
        if (newer := reader.newest()) is not None:
            actor = make_actor(newer.tensors, newer.metadata, envs)
            version = newer.version
            if version > SETTLE_VERSIONS:
                used_s.append(time.monotonic() - newer.published_at)
        if actor is not None:
            actor.sample(rows, noise)
    answers.send(used_s)


if __name__ == "__main__":
    main()
