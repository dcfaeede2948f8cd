from __future__ import annotations

import itertools
import math
import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from spreeze.errors import ConfigError

GUARD_S = 60.0
ray_cluster = pytest.importorskip("spreeze.cluster.ray_cluster", reason="Ray is not installed", exc_type=ImportError)


def test_a_port_where_nothing_listens_is_named_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # it is not listened on
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"nothing answers at .*:{port}") as raised:
            ray_cluster.connect(f"127.0.0.1:{port}", ())
    assert "\n" not in str(raised.value)


def test_a_machine_in_no_cluster_is_told_how_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(_address: str) -> str:
        raise ConnectionError("Could not find any running Ray instance.\nPlease specify the one to connect to.")

    monkeypatch.setattr("ray._private.services.canonicalize_bootstrap_address", find)
    with pytest.raises(ConfigError, match="ray start --head") as raised:
        ray_cluster.connect("auto", ())
    assert "\n" not in str(raised.value)
    with pytest.raises(ConfigError, match="nowhere:6379 cannot be found"):
        ray_cluster.connect("nowhere:6379", ())


def test_modules_that_are_sent_must_be_there() -> None:
    assert ray_cluster._path_of("json.decoder").endswith("json")
    with pytest.raises(ConfigError, match="--cluster-ship: there is no file of the module 'no_such_module'"):
        ray_cluster._path_of("no_such_module")


def test_a_machine_that_was_started_again_is_seen_once_although_ray_holds_its_old_node_for_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Membership(ray_cluster.Membership):
        def _run(self) -> None:
            """Look when the test does."""

    def node(node_id: str, port: int) -> dict[str, Any]:
        where = {"NodeManagerAddress": "127.0.0.1", "NodeManagerHostname": "alpha", "NodeManagerPort": port}
        return {"NodeID": node_id, "Alive": True, "Resources": {"CPU": 2.0}, **where}

    monkeypatch.setattr("ray.get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "own"))
    monkeypatch.setattr(ray_cluster, "available_resources_per_node", lambda: {"new": {"CPU": 1.0}})
    with socket.socket() as before, socket.socket() as after:
        for port in (before, after):
            port.bind(("127.0.0.1", 0))
        after.listen()  # nobody listens where the old one was
        nodes = [node("old", before.getsockname()[1]), node("new", after.getsockname()[1])]
        monkeypatch.setattr("ray.nodes", lambda: nodes)
        assert Membership()._look_now().nodes == (ray_cluster.Node("new", "alpha", 2, 1, 0),)


def test_nodes_that_say_that_they_listen_at_the_same_place_have_the_time_of_their_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = [bytes([number]) * 28 for number in (1, 2)]
    infos = {name: SimpleNamespace(node_id=name, start_time_ms=1000 * (at + 1)) for at, name in enumerate(ids)}
    service = SimpleNamespace(get_all_node_info=lambda **_: infos)
    monkeypatch.setattr("ray._private.worker.global_worker.gcs_client", service, raising=False)
    where = {"NodeManagerAddress": "127.0.0.1", "NodeManagerPort": 6380}
    places = ray_cluster._places_of([{"NodeID": name.hex(), **where} for name in ids])
    assert [place.started_at for place in places] == [1.0, 2.0]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_cluster_is_looked_at_soon_after_the_end_of_an_agent_whose_cpus_the_next_one_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = itertools.count(1)

    def nodes() -> list[dict[str, Any]]:
        if next(looks) == 3:
            raise SystemExit  # the end of the thread that looks
        return []

    monkeypatch.setattr("ray.get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "own"))
    monkeypatch.setattr(ray_cluster, "available_resources_per_node", dict)
    monkeypatch.setattr("ray.nodes", nodes)
    monkeypatch.setattr("ray.kill", lambda _actor: None)
    monkeypatch.setattr(ray_cluster, "LOOK_S", math.inf)
    before = set(threading.enumerate())
    membership = ray_cluster.Membership()
    (thread,) = set(threading.enumerate()) - before
    membership.kill("an agent")
    thread.join(GUARD_S)
    assert not thread.is_alive()
