"""Who gets what from a real server."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from folders import write_run
from servers import Served

from spreeze.views.dashboard.access import Access, is_loopback, is_served

Serve = Callable[..., Served]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "runs" / "one", 30, ends="max_seconds")


CLIMBING = [
    "/../../etc/passwd",
    "/..%2f..%2f..%2fetc/passwd",
    "/%2e%2e/%2e%2e/etc/passwd",
    "/%252e%252e/%252e%252e/etc/passwd",
    "/..\\..\\etc\\passwd",
    "/_nicegui/../../../etc/passwd",
    "/_nicegui/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "/_nicegui/3.18.0/static/..%2f..%2f..%2f..%2f..%2fetc/passwd",
    "/_nicegui/3.18.0/resources/x/..%2f..%2fetc/passwd",
    "/_nicegui/3.18.0/libraries//etc/passwd",
    "/_nicegui/3.18.0/components//etc/passwd",
    "//etc/passwd",
    "/etc/passwd",
    "/?run=../../etc/passwd",
    "/?run=/etc/passwd&tab=../..&theme=<script>",
    "/docs",
    "/openapi.json",
    "/config.json",
    "/%00",
]


@pytest.fixture(scope="module")
def module_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "one", 30, ends="max_seconds")


@pytest.fixture(scope="module")
def served(module_serve: Serve, module_run: Path) -> Served:
    """A dashboard of that run, for tests that only ask."""
    return module_serve(module_run)


def test_no_file_of_the_machine_can_be_read(served: Served, module_run: Path) -> None:
    for path in CLIMBING:
        status, content, _ = served.get(path)
        assert "root:" not in content, path
        assert "Traceback" not in content, path
        assert str(module_run) not in content, path
        assert "<script>&tab" not in content, path
        assert status == (200 if path.startswith("/?") else 404), path
        if status == 404 and not path.startswith("/_nicegui/3"):  # NiceGUI, which makes a page of it, was not asked
            assert content == "There is no such page.\n", path


def test_the_page_does_not_say_where_the_run_is(served: Served, module_run: Path) -> None:
    _, content, headers = served.get("/?tab=settings")
    assert "Pendulum-v1" in content
    assert str(module_run.parent) not in content
    assert "default-src 'self'" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer"


def test_other_sites_are_kept_out(served: Served) -> None:
    assert served.get("/", {"Host": "evil.example"})[0] == 403  # a name that was made to point at this machine
    assert served.get("/", {"Origin": "http://evil.example"})[0] == 403
    assert served.get("/", {"Origin": served.origin})[0] == 200
    assert served.get("/", {"Host": f"localhost:{served.port}"})[0] == 200
    assert handshake(served, {"Origin": "http://evil.example"}) == 403


def test_another_host_needs_the_token_for_everything(serve: Serve, run: Path) -> None:
    served = serve(run, "--host", "0.0.0.0")
    cookie = f"spreeze-token-{served.port}"
    for path in (
        "/",
        "/?token=wrong",
        "/?token=",
        "/frame",
        "/_nicegui/3.18.0/static/nicegui.css",
        "/favicon.ico",
        "/x",
    ):
        status, content, headers = served.get(path)
        assert status == 403, path
        assert "Pendulum" not in content
        assert "set-cookie" not in headers
        assert served.get(path, {"Cookie": f"{cookie}=wrong"})[0] == 403
    assert handshake(served, {}) == 403
    status, content, headers = served.get(f"/?token={served.token}")
    assert status == 200
    assert "Pendulum" in content
    assert headers["set-cookie"].startswith(f"{cookie}={served.token}; HttpOnly; SameSite=Strict")
    kept = {"Cookie": f"{cookie}={served.token}"}
    assert served.get("/_nicegui/3.18.0/static/nicegui.css", kept)[0] == 200
    assert handshake(served, kept) != 403


def test_pictures_need_the_key_of_a_page(serve_live: Serve, run: Path) -> None:
    served = serve_live(run)
    assert served.get("/frame")[0] == 403
    assert served.get("/frame?key=wrong")[0] == 403
    key = Access("127.0.0.1", served.port, served.token).frame_key
    status, content, headers = served.get(f"/frame?key={key}")
    assert (status, headers["content-type"]) == (200, "image/jpeg")
    assert content
    assert '"version": "12,087"' in headers["x-frame"]
    assert served.get(f"/frame?key={key}&after=x")[0] == 422


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere",), "'nowhere' is not a run folder"),
        ((".",), "'.' is not a run folder, and holds none"),
        ((), "there are no runs under runs"),
        (("--port", "70000", "."), "--port must be within 0 and 65535"),
        (("--port", "x", "."), "--port must be a whole number"),
        (("--prot", "1"), "did you mean --port?"),
    ],
)
def test_wrong_input_is_one_line(spreeze: Any, words: tuple[str, ...], said: str) -> None:
    done = spreeze("dashboard", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [("--host", "no.such.host.invalid"), ("--host", "8.8.8.8"), ()])
def test_an_address_that_cannot_be_used_is_one_line(spreeze: Any, run: Path, words: tuple[str, ...]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = spreeze("dashboard", run, "--port", port, *words)
    assert done.returncode == 2
    assert done.stderr.startswith("spreeze: ")
    assert done.stderr.count("\n") == 1


def test_without_nicegui_it_says_how_to_get_it(spreeze: Any, run: Path) -> None:
    path = os.pathsep.join([spreeze.without("nicegui")["PYTHONPATH"], os.environ.get("PYTHONPATH", "")])
    done = spreeze("dashboard", run, environment={"PYTHONPATH": path})
    assert done.returncode == 2
    assert 'pip install "spreeze[dashboard]"' in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("signal_name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_it_without_a_word(serve: Serve, run: Path, signal_name: str) -> None:
    import signal

    served = serve(run, as_program=True)
    assert served.get("/")[0] == 200
    served.process.send_signal(getattr(signal, signal_name))
    assert served.process.wait() == 130
    assert "Traceback" not in served.said()


def test_stopping_needs_the_token() -> None:
    here, elsewhere = Access("127.0.0.1", 1, "abc"), Access("0.0.0.0", 1, "abc")
    assert here.may_stop("abc", None)
    assert not here.may_stop(None, None)
    assert not here.may_stop("ab", "abc")
    assert elsewhere.may_stop(None, "abc")
    assert not elsewhere.may_stop("", "")
    assert not here.is_token("ä")


def test_addresses() -> None:
    assert Access("127.0.0.1", 8420, "a b").address == "http://127.0.0.1:8420/?token=a%20b"
    assert Access("::1", 8420, "t").address == "http://[::1]:8420/?token=t"
    assert Access("0.0.0.0", 8420, "t").address == f"http://{socket.gethostname()}:8420/?token=t"
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost")] == [True] * 5
    assert [is_loopback(host) for host in ("0.0.0.0", "", "10.0.0.1", "localhost.evil.example")] == [False] * 4
    assert is_served("/_nicegui/3.18.0/static/nicegui.css")
    assert not is_served("/_nicegui")


def handshake(served: Served, headers: dict[str, str]) -> int:
    """Ask for a websocket; return the status of the answer."""

    async def ask() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        fields = {
            "Host": f"127.0.0.1:{served.port}",
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            **headers,
        }
        request = "GET /_nicegui_ws/socket.io/?EIO=4&transport=websocket HTTP/1.1\r\n"
        writer.write((request + "".join(f"{name}: {value}\r\n" for name, value in fields.items()) + "\r\n").encode())
        line = await reader.readline()
        writer.close()
        return int(line.split()[1])

    return asyncio.run(ask())
