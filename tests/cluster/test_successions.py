"""Nodes that are gone although Ray holds them for alive; their ports are real ones of this machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from spreeze.cluster.successions import Place, Successions

HERE = "127.0.0.1"


@pytest.fixture
def ports() -> Iterator[list[socket.socket]]:
    """Three ports that are taken; nobody listens there until a test does."""
    opened = [socket.socket() for _ in range(3)]
    for port in opened:
        port.bind((HERE, 0))
    yield opened
    for port in opened:
        port.close()


def place(node_id: str, port: socket.socket, started_at: float = 0.0) -> Place:
    return Place(node_id, HERE, port.getsockname()[1], started_at)


def test_a_node_is_gone_when_its_machine_has_another_and_refuses_to_answer_for_it(ports: list[socket.socket]) -> None:
    before, after, _ = ports
    after.listen()
    successions = Successions()
    old, new = place("old", before), place("new", after)
    assert successions.gone([old]) == set()  # a machine with one node is not asked
    assert successions.gone([old, new]) == {"old"}
    before.listen()  # another program has this port by now
    assert successions.gone([new, old]) == {"old"}
    assert successions.gone([new]) == set()


def test_nodes_that_share_a_machine_are_all_there(ports: list[socket.socket]) -> None:
    for port in ports:
        port.listen()
    assert Successions().gone([place(str(number), port) for number, port in enumerate(ports)]) == set()


def test_of_nodes_with_the_same_port_the_last_that_came_is_there(ports: list[socket.socket]) -> None:
    port, *_ = ports
    port.listen()
    successions = Successions()
    successions.gone([place("old", port, started_at=5.0)])
    # The clock of its machine was wrong when it started.
    assert successions.gone([place("new", port, started_at=1.0), place("old", port, started_at=5.0)]) == {"old"}


def test_of_nodes_with_the_same_port_that_were_there_before_the_last_started_is_there(
    ports: list[socket.socket],
) -> None:
    port, *_ = ports
    port.listen()
    assert Successions().gone([place("new", port, 5.0), place("old", port, 1.0)]) == {"old"}
    assert Successions().gone([place("new", port), place("old", port)]) == set()  # nobody knows


def test_a_machine_that_is_cut_off_is_asked_once_per_look_and_keeps_its_nodes(ports: list[socket.socket]) -> None:
    asked = list[str]()

    def is_silent(place: Place) -> None:
        asked.append(place.node_id)

    places = [place(str(number), port) for number, port in enumerate(ports)]
    assert Successions(is_silent).gone(places) == set()
    assert len(asked) == 1
