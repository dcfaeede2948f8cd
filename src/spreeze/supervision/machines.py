"""Turns the records of other machines into figures: rates over a window, rows that arrived and rows that were lost.

In: the channel of machines and their rings, read once per second. Out: `ClusterFigures`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from spreeze.channels import Channels
from spreeze.channels.machines import MachineRecord, MachineState
from spreeze.runs.records import ClusterFigures, MachineFigures

WAITS_SHARE = 0.2  # of a window: who waits for so long for the link, or for room in its ring, is held up by that


@dataclass(frozen=True)
class _Reading:
    at: float
    record: MachineRecord
    arrived: int


class MachinesReader:
    """Remembers the last reading of each machine: a window is from one reading to the next."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._last: dict[int, _Reading] = {}

    def read(self) -> ClusterFigures | None:
        """Read what has been counted since the last time, and in all; None for a run on one machine."""
        if not self._channels.machines.count:
            return None
        machines = [self._read(ring, record) for ring, record in self._channels.machines.read()]
        return ClusterFigures(
            rows_sampled=sum(machine.rows_sampled for machine in machines),
            rows_arrived=sum(machine.rows_arrived for machine in machines),
            rows_lost=sum(machine.rows_lost for machine in machines),
            rows_repeated=sum(machine.rows_repeated for machine in machines),
            machines=tuple(machines),
        )

    def _read(self, ring: int, record: MachineRecord) -> MachineFigures:
        arrived = self._channels.transitions[ring].written() or 0
        now = _Reading(time.monotonic(), record, arrived)
        last = self._last.get(ring, now)
        self._last[ring] = now
        seconds = max(now.at - last.at, 1e-9)
        published_at = float(self._channels.metrics.samplers["policy_published_at"][ring])
        return MachineFigures(
            name=record.name,
            state=record.state.name.lower(),
            samplers=record.samplers,
            rows_hz=round((arrived - last.arrived) / seconds, 1),
            bytes_hz=round((record.bytes_arrived - last.record.bytes_arrived) / seconds, 1),
            policy_lag_s=round(now.at - published_at, 4) if published_at else None,
            round_trip_s=round(record.round_trip_s, 5),
            waits_for=_waits_for(last.record, record, seconds),
            rows_sampled=record.rows_sampled,
            rows_arrived=arrived,
            rows_lost=record.rows_lost,
            rows_repeated=record.rows_repeated,
        )


def _waits_for(before: MachineRecord, now: MachineRecord, seconds: float) -> str | None:
    if now.state != MachineState.AT_WORK:
        return None
    waits = {
        "learner": now.learner_wait_s - before.learner_wait_s,
        "link": now.link_wait_s - before.link_wait_s,
    }
    what = max(waits, key=lambda name: waits[name])
    return what if waits[what] >= WAITS_SHARE * seconds else None
