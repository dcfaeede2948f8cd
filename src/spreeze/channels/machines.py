"""Machines: what the gateway to other machines counts about each of them.

Writers: one, the gateway of a run on several machines; one that is restarted continues what the one before it has
counted. While there is none, the supervisor puts the records right. Readers: the supervisor.
Guaranteed: a number is never torn (aligned 8 bytes). Counts only rise. Two numbers of a record may be from slightly
different moments.
When there are more machines than records: those that come last are left out, and the run says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.memory import MakeSegment, SharedSegment
from spreeze.channels.transitions import TransitionChannel

MAX_MACHINES = 64
MAX_NAME_BYTES = 64


class MachineState(IntEnum):
    """What a machine does for the run."""

    UNUSED = 0
    """No machine has this record."""
    JOINING = 1
    """Its agent is being started, or its samplers are."""
    AT_WORK = 2
    """Its samplers step."""
    AWAY = 3
    """It does not answer, or has left the cluster. It is used again when it is back."""
    REFUSED = 4
    """It has other versions of what the run needs, or its environment fails."""


MACHINE = np.dtype(
    [
        ("name", f"S{MAX_NAME_BYTES}"),
        ("state", "i8"),
        ("samplers", "i8"),
        ("envs", "i8"),
        ("rows_sampled", "i8"),
        ("rows_lost", "i8"),
        ("rows_repeated", "i8"),
        ("bytes_arrived", "i8"),
        ("round_trip_s", "f8"),
        ("link_wait_s", "f8"),
        ("learner_wait_s", "f8"),
    ]
)
# rows_sampled: rows that its samplers have written there, as far as it has reported them. rows_lost: of those, the
# ones that will not arrive, because their machine died or was cut off before it had sent them. rows_repeated: rows
# that arrived again after an error, and were left out. What has arrived is what its ring has ever held. link_wait_s,
# learner_wait_s: for how long its rows have waited for the link, and for room in its ring here.
_LAYOUT = np.dtype([("agents", "i8"), ("machines", MACHINE, (MAX_MACHINES,))])
# agents: how many agents were started since the run was started or resumed, so that no two have the same seeds.


@dataclass(frozen=True)
class MachineRecord:
    """One machine, as its record says."""

    name: str
    state: MachineState
    samplers: int
    envs: int
    rows_sampled: int
    rows_lost: int
    rows_repeated: int
    bytes_arrived: int
    round_trip_s: float
    link_wait_s: float
    learner_wait_s: float


class MachinesChannel:
    """The records of all other machines. Record N belongs to ring `first_ring` + N."""

    def __init__(self, first_ring: int = 0, count: int = 0, make_segment: MakeSegment = SharedSegment) -> None:
        """first_ring: the first channel of transitions that is a machine's. count: how many machines there may be."""
        self.first_ring, self.count = first_ring, count
        self._segment = make_segment("machines", _LAYOUT.itemsize)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a child has to inherit."""
        return self._segment.descriptors

    def close(self) -> None:
        """Close the descriptor."""
        self._segment.close()

    @property
    def records(self) -> NDArray[Any]:
        """The machines' records, `MACHINE`, as many as there may be machines."""
        records: NDArray[Any] = self._segment.array(_LAYOUT, (1,))["machines"][0]
        return records[: self.count]

    def count_agent(self) -> int:
        """Count one more agent; return its number, which no other has until the run is resumed."""
        agents = self._segment.array(_LAYOUT, (1,))["agents"]
        agents += 1
        return int(agents[0])

    def read(self) -> list[tuple[int, MachineRecord]]:
        """Return the records that are in use, each with the index of its ring."""
        if not self.count:
            return []
        return [
            (self.first_ring + slot, _record_of(record))
            for slot, record in enumerate(self.records)
            if record["state"] != MachineState.UNUSED
        ]

    @property
    def rings(self) -> int:
        """How many channels of transitions have to be read for the machines: 0 without one."""
        return max((ring + 1 for ring, _ in self.read()), default=0)

    @property
    def envs_at_work(self) -> int:
        """Environments of all machines together."""
        return int(self.records["envs"].sum()) if self.count else 0

    @property
    def samplers_at_work(self) -> int:
        """Samplers of all machines together."""
        return int(self.records["samplers"].sum()) if self.count else 0


def settle(channel: TransitionChannel, machine: NDArray[Any], sampler: NDArray[Any]) -> int:
    """Put the counters of a machine right that has no agent any more; return how many of its rows are newly lost."""
    arrived = channel.written() or 0
    lost = max(0, int(machine["rows_sampled"][0]) - int(machine["rows_lost"][0]) - arrived)
    machine["rows_lost"] += lost
    machine["samplers"] = machine["envs"] = 0
    sampler["policy_published_at"] = 0.0  # what does not act has no lag
    # As with a sampler that was killed: who waits for as many rows as there were steps would wait for ever.
    sampler["env_steps"] = arrived
    return lost


def _record_of(record: Any) -> MachineRecord:
    fields = {name: record[name].item() for name in MACHINE.names or () if name not in ("name", "state")}
    return MachineRecord(record["name"].decode(errors="replace"), MachineState(int(record["state"])), **fields)
