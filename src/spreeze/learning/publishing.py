"""Publishes the policy to all processes that act with it, and reports the figures of its updates.

On a GPU both are read back while updates run.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.algorithms.algorithm import Algorithm
from spreeze.algorithms.spec import Figure
from spreeze.channels.brief import Brief
from spreeze.channels.control import RecordEvent
from spreeze.host.json_text import json_text
from spreeze.host.write_failures import WriteFailures
from spreeze.learning.normalisation import Normaliser
from spreeze.learning.transfers import Readback
from spreeze.learning.updates import Updates
from spreeze.policy.action_format import describe_actions

REPORT_INTERVAL_S = 0.5
DIVERGED = "the updates diverge, {} not finite: lower --learning-rate or the rewards' scale"


class Publisher:
    """Publishes the policy, a few times per second."""

    def __init__(
        self, brief: Brief, algorithm: Algorithm, normaliser: Normaliser | None, record_event: RecordEvent
    ) -> None:
        self._algorithm, self._normaliser, self._record_event = algorithm, normaliser, record_event
        self._write_failures = WriteFailures("weights", "older ones stay in use")
        self._readback = Readback()
        self._writer = brief.channels.weights.writer()
        self._counters = brief.channels.metrics.learner
        self._interval_s = brief.config.learning.publish_interval_s
        self._started_at = brief.started_at
        self._due_at = 0.0
        self._published = 0
        """Updates that are in the newest version."""
        self._progress: dict[str, str] = {}
        self._bounds, action_about = describe_actions(brief.spaces.action)
        self._about = {
            "env": brief.config.env,
            "algo": brief.config.algo,
            "policy": algorithm.policy_kind,
            "observation": json_text(brief.spaces.observation),
            **action_about,
        }

    def turn(self, now: float, updates: int) -> None:
        """Request the policy, as it will be after this many updates, if it is time; write it once it has arrived."""
        if now >= self._due_at:
            self._due_at = now + self._interval_s
            self._request(updates)
        self._write(self._readback.take())

    def publish(self, updates: int) -> None:
        """Publish the policy as it is now, after this many updates, unless the newest version has them."""
        if updates != self._published:
            self._request(updates)
            self._write(self._readback.take(wait=True))

    def close(self) -> None:
        """No version follows."""
        with contextlib.suppress(OSError):  # what cannot be written now was warned of
            self._writer.close()

    def _request(self, updates: int) -> None:
        policy = self._algorithm.policy()
        self._readback.start(policy if self._normaliser is None else self._normaliser.inside(policy))
        self._progress = {
            "updates": str(updates),
            "env_steps": str(int(self._counters["rows_stored"][0])),
            "wall_s": f"{time.monotonic() - self._started_at:.3f}",
        }

    def _write(self, tensors: dict[str, NDArray[np.float32]] | None) -> None:
        if tensors is None:
            return
        if not all(np.isfinite(tensor).all() for tensor in tensors.values()):
            raise FloatingPointError(DIVERGED.format("weights of the policy are"))
        try:
            self._writer.publish({**tensors, **self._bounds}, {**self._about, **self._progress})
        except OSError as error:
            warning = self._write_failures.failed(error)
        else:
            warning, self._published = self._write_failures.succeeded(), int(self._progress["updates"])
        if warning is not None:
            self._record_event("warning", warning)


class Reporter:
    """Reads the figures of the updates a few times per second, and raises once a loss is not finite."""

    def __init__(self, counters: NDArray[Any], updates: Updates, figures: Sequence[Figure]) -> None:
        self._counters, self._updates = counters["figures"], updates
        self._names = [figure.name for figure in figures]
        self._readback = Readback()
        self._due_at = 0.0

    def turn(self, now: float) -> None:
        """Request the figures if the interval has passed; store them once they have arrived."""
        if now >= self._due_at:
            self._due_at = now + REPORT_INTERVAL_S
            self._readback.start({"figures": self._updates.figures})
        self._store(self._readback.take())

    def report(self) -> None:
        """Store the figures as they are now."""
        self._readback.start({"figures": self._updates.figures})
        self._store(self._readback.take(wait=True))

    def _store(self, tensors: dict[str, NDArray[np.float32]] | None) -> None:
        if tensors is None:
            return
        figures = tensors["figures"]
        self._counters[0, : len(figures)] = figures
        lost = [name for name, value in zip(self._names, figures, strict=True) if not np.isfinite(value)]
        if any(name.endswith("_loss") for name in lost):
            raise FloatingPointError(DIVERGED.format(f"{', '.join(lost)} {'is' if len(lost) == 1 else 'are'}"))
