"""The learner: takes transitions out of the channels into the replay, updates the networks, publishes weights."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze.algorithms import ALGORITHMS
from spreeze.algorithms.sac import Losses, Sac
from spreeze.channels.control import MessageWriter
from spreeze.channels.transitions import RowLayout, Rows
from spreeze.child import ChildSpec
from spreeze.ratio import RatioGate
from spreeze.replay import Replay

IDLE_WAIT_S = 0.0005  # a vector step of samplers takes about as long: nothing is gained by looking more often
LOSSES_INTERVAL_S = 0.5  # reading a loss makes the host wait for the device
DIVERGED = "the updates diverge, losses or weights are not finite: lower --learning-rate or the rewards' scale"
# An environment that gives this share of unusable rows, after this many, is broken rather than unlucky.
MAX_REJECTED_SHARE, VERDICT_ROWS = 0.5, 1000


def run(spec: ChildSpec, _messages: MessageWriter) -> None:
    """Learn until told to stop."""
    config, control = spec.config, spec.channels.control
    torch.set_num_threads(int(config.learning.learner_threads))
    device = torch.device(config.learning.device)
    torch.manual_seed(config.seed)
    layout = RowLayout(spec.spaces.observation_size, spec.spaces.action_size)
    algorithm = _make_algorithm(spec, device)
    counters = spec.channels.metrics.learner
    batch_size = int(config.learning.batch_size)
    counters["batch_size"] = batch_size
    intake = Intake(spec, layout)
    replay = Replay(layout, int(config.learning.replay_rows), device, config.seed)
    gate = RatioGate(config, spec.channels.metrics)
    publisher = Publisher(spec, algorithm)
    losses: Losses | None = None
    losses_due_at = 0.0

    while not control.stopping():
        control.beat(spec.slot)
        for rows in intake.usable_rows():
            replay.add(rows)
        counters["replay_rows"] = len(replay)
        now = time.monotonic()
        if not gate.learner_may_update():
            # Too few rows yet, or too many updates for them. The rows come from processes that need the core.
            time.sleep(IDLE_WAIT_S)
            counters["ratio_wait_s"] += time.monotonic() - now
            continue
        losses = algorithm.update(replay.draw(batch_size))
        if not counters["updates"][0]:
            counters["first_update_at"] = time.monotonic()
        counters["updates"] += 1
        counters["update_frames"] += batch_size
        publisher.publish_if_due(now)
        if now >= losses_due_at:
            losses_due_at = now + LOSSES_INTERVAL_S
            _report(counters, losses)
    if losses is not None:
        _report(counters, losses)
        publisher.publish()


class Intake:
    """Takes rows out of the channels, and keeps out those with a NaN or an infinity."""

    def __init__(self, spec: ChildSpec, layout: RowLayout) -> None:
        self._readers = [channel.reader() for channel in spec.channels.transitions]
        self._layout = layout
        self._counters = spec.channels.metrics.learner
        # Samplers may stop at the end of the warm-up until there is an update: more rows may never come.
        self._verdict_rows = min(VERDICT_ROWS, spec.config.sampling.warmup_steps)

    def usable_rows(self) -> Iterator[Rows]:
        """Yield blocks of rows; each is valid until the next is asked for."""
        for reader in self._readers:
            for rows in reader.read():
                finite = np.isfinite(rows).all(axis=1)
                usable = rows if finite.all() else rows[finite]
                yield usable
                self._counters["rows_stored"] += len(usable)
                if len(usable) < len(rows):
                    self._reject(rows[~finite])
                self._counters["rows_consumed"] += len(rows)

    def _reject(self, rows: Rows) -> None:
        self._counters["rows_rejected"] += len(rows)
        rejected, stored = int(self._counters["rows_rejected"][0]), int(self._counters["rows_stored"][0])
        if rejected + stored >= self._verdict_rows and rejected > MAX_REJECTED_SHARE * (rejected + stored):
            column = int(np.argmin(np.isfinite(rows).all(axis=0)))
            raise ValueError(
                f"the environment gives NaN or infinity in its {self._layout.name_of(column)}: "
                f"{rejected} of {rejected + stored} transitions could not be used"
            )


class Publisher:
    """Publishes the policy as a file, a few times a second."""

    def __init__(self, spec: ChildSpec, algorithm: Sac) -> None:
        self._algorithm = algorithm
        self._writer = spec.channels.weights.writer()
        self._counters = spec.channels.metrics.learner
        self._interval_s = spec.config.learning.publish_interval_s
        self._started_at = spec.started_at
        self._due_at = 0.0
        self._bounds = {"action_low": spec.spaces.action_low, "action_high": spec.spaces.action_high}
        self._about = {
            "env": spec.config.env,
            "algo": spec.config.algo,
            "observation": json.dumps(spec.spaces.observation),
            "action_shape": json.dumps(spec.spaces.action_shape),
        }

    def publish_if_due(self, now: float) -> None:
        """Publish if the interval has passed."""
        if now >= self._due_at:
            self._due_at = now + self._interval_s
            self.publish()

    def publish(self) -> None:
        """Publish the policy as it is now."""
        # On a GPU this copy is a synchronisation point: it waits for the updates under way.
        tensors = {name: tensor.cpu().numpy() for name, tensor in self._algorithm.policy().items()}
        if not all(np.isfinite(tensor).all() for tensor in tensors.values()):
            raise FloatingPointError(DIVERGED)
        progress = {
            "updates": str(int(self._counters["updates"][0])),
            "env_steps": str(int(self._counters["rows_stored"][0])),
            "wall_s": f"{time.monotonic() - self._started_at:.3f}",
        }
        self._writer.publish({**tensors, **self._bounds}, {**self._about, **progress})


def _make_algorithm(spec: ChildSpec, device: torch.device) -> Sac:
    learning = spec.config.learning
    auto_entropy = -float(spec.spaces.action_size)
    return ALGORITHMS[spec.config.algo](
        spec.spaces.observation_size,
        spec.spaces.action_size,
        learning.hidden,
        learning_rate=learning.learning_rate,
        tau=learning.tau,
        initial_temperature=learning.initial_temperature,
        target_entropy=auto_entropy if learning.target_entropy == "auto" else learning.target_entropy,
        device=device,
        seed=spec.config.seed,
    )


def _report(counters: NDArray[Any], losses: Losses) -> None:
    for name, value in losses._asdict().items():
        counters[name] = value.item()
    if not math.isfinite(float(counters["critic_loss"][0])):
        raise FloatingPointError(DIVERGED)
