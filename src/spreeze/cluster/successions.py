"""Finds nodes that are gone although Ray still holds them for alive: their machine has another one by now.

Ray takes 15 s by default to give up a node that nobody answers for, and a minute where nothing answers at all. A
machine that has lost power, or its raylet, is often back before, with a node of another id: its old node would be one
that does not answer, and the new one another machine of the same name.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

REFUSED_S = 0.5  # a machine that is there refuses within a round trip; one that is not there costs this, in each look


@dataclass(frozen=True)
class Place:
    """Where a node listens."""

    node_id: str
    address: str
    port: int
    """Of its raylet, which opens it before the cluster hears of the node, and closes it when it ends."""
    started_at: float = 0.0
    """By the clock of its machine; 0 if that is not known."""


def refuses(place: Place) -> bool | None:
    """Return whether nobody listens there; None if there is no answer."""
    try:
        socket.create_connection((place.address, place.port), REFUSED_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return None
    return False


class Successions:
    """Remembers which nodes have come when, and which of them are gone."""

    def __init__(self, refuses: Callable[[Place], bool | None] = refuses) -> None:
        self._refuses = refuses
        self._looks = 0
        self._came: dict[str, int] = {}
        """With which look each node came."""
        self._gone: set[str] = set()
        """For good: something else may listen at their ports one day."""

    def gone(self, places: Iterable[Place]) -> set[str]:
        """Return which of these nodes are gone, by their ids.

        Only machines with several nodes are asked, so that an ordinary cluster costs nothing.
        """
        self._looks += 1
        machines: dict[str, list[Place]] = defaultdict(list)
        for place in places:
            machines[place.address].append(place)
        there = {place.node_id for of_machine in machines.values() for place in of_machine}
        self._came = {node_id: self._came.get(node_id, self._looks) for node_id in there}
        self._gone &= there
        for of_machine in machines.values():
            self._look_at([place for place in of_machine if place.node_id not in self._gone])
        return set(self._gone)

    def _look_at(self, of_machine: list[Place]) -> None:
        if len(of_machine) < 2:
            return
        ports: dict[int, Place] = {}
        for place in sorted(of_machine, key=self._age):
            before = ports.get(place.port)
            if before is not None and self._age(place) > self._age(before):
                self._gone.add(before.node_id)  # two cannot listen there
            ports[place.port] = place
        for place in ports.values():
            is_refused = self._refuses(place)
            if is_refused is None:
                return  # the whole machine is silent, and each of its nodes would cost as much
            if is_refused:
                self._gone.add(place.node_id)

    def _age(self, place: Place) -> tuple[int, float]:
        # The clock of a machine may be wrong until a network has set it: what was seen here comes first.
        return self._came[place.node_id], place.started_at
