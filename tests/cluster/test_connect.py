from __future__ import annotations

import socket

import pytest

from spreeze.errors import ConfigError

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
