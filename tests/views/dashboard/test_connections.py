"""Clients that hold connections without using them: they are closed, and everybody else is served meanwhile."""

from __future__ import annotations

import base64
import contextlib
import os
import select
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from folders import append, metric, write_run
from servers import START_GUARD_S, Look, Served, wait_until

from spreeze.views.dashboard.access import is_loopback
from spreeze.views.dashboard.connections import MAX_CONNECTIONS, MAX_WEBSOCKETS, REFUSED, Connections
from spreeze.views.dashboard.shared_state import MAX_UNOPENED
from spreeze.views.watch_page import MAX_CONNECTIONS as MAX_WATCH_CONNECTIONS
from spreeze.views.watch_page import WatchPage

Serve = Callable[..., Served]
Connect = Callable[..., socket.socket]

GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
POST = b"POST /_nicegui_ws/socket.io/?EIO=4&transport=polling HTTP/1.1\r\nHost: 127.0.0.1\r\n"
# What is sent at once, and what is sent again and again.
SLOW: dict[str, tuple[bytes, bytes]] = {
    "silent": (b"", b""),
    "half a word": (b"GE", b""),
    "headers that do not end": (GET, b""),
    "headers that trickle": (GET, b"X-Slow: 1\r\n"),
    "a header that trickles": (GET + b"X-Slow: ", b"1"),
    "body that does not come": (POST + b"Content-Length: 100000\r\n\r\n", b""),
    "body that trickles": (POST + b"Content-Length: 100000\r\n\r\n", b"x"),
    "chunks that trickle": (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "idle after a request": (GET + b"\r\n", b""),
    "trickling after a request": (GET + b"\r\n", b"G"),
}


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Open connections that are closed at the end of the test."""
    with contextlib.ExitStack() as stack:

        def open_one(port: int, send: bytes = b"", receive_bytes: int | None = None) -> socket.socket:
            made = stack.enter_context(socket.socket())
            if receive_bytes is not None:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            made.settimeout(START_GUARD_S)
            made.connect(("127.0.0.1", port))
            made.sendall(send)
            return made

        yield open_one


def wait_for_ends(
    connections: dict[str, socket.socket], more: dict[str, bytes], serves: Callable[[], object]
) -> None:
    """Wait until the server has closed all of them, while they send more, and look whether it serves others."""
    deadline = time.monotonic() + START_GUARD_S
    left = dict(connections)
    while left:
        if time.monotonic() > deadline:
            pytest.fail(f"still open: {sorted(left)}")
        serves()
        waiting = select.poll()  # `select.select` takes no descriptor above 1023
        for connection in left.values():
            waiting.register(connection, select.POLLIN)
        readable = {fd for fd, _ in waiting.poll(100)}
        for name, connection in list(left.items()):
            try:
                if connection.fileno() in readable and connection.recv(65536) == b"":
                    del left[name]
                elif name in more:
                    connection.sendall(more[name])
            except OSError:  # it was closed while we sent
                left.pop(name, None)


def test_requests_that_do_not_end_are_ended(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    served = serve(write_run(tmp_path / "run", 30))
    connections = {name: connect(served.port, first) for name, (first, _) in SLOW.items()}
    wait_for_ends(
        connections, {name: more for name, (_, more) in SLOW.items() if more}, lambda: check(served.get("/")[0])
    )


def check(status: int) -> None:
    assert status == 200


def test_answers_that_nobody_receives_are_ended(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    served = serve(write_run(tmp_path / "run", 30))
    server = psutil.Process(served.process.pid)
    ask = b"GET /_nicegui/3.18.0/static/vue.esm-browser.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    port = connect(served.port, 40 * ask, receive_bytes=4096).getsockname()[1]
    of_client = lambda: [each for each in server.net_connections() if each.raddr and each.raddr.port == port]  # noqa: E731
    wait_until(lambda: any(each.status == psutil.CONN_ESTABLISHED for each in of_client()), "the connection")
    wait_until(lambda: not of_client(), "its end")
    assert served.get("/")[0] == 200


@pytest.mark.parametrize("kind", ["connections", "websockets"])
def test_pages_go_on_whatever_others_hold(
    serve: Serve, connect: Connect, look: Look, tmp_path: Path, kind: str
) -> None:
    from playwright.sync_api import expect

    expect.set_options(timeout=1000 * START_GUARD_S)
    run = write_run(tmp_path / "run", 20)
    served = serve(run)
    server = psutil.Process(served.process.pid)
    page = look(served.address)
    expect(page.locator("[data-field=sampling_hz]")).to_contain_text("3,")
    page.wait_for_function("window.socket.connected")
    rss_before = server.memory_info().rss
    if kind == "connections":
        held = [connect(served.port, GET) for _ in range(3 * MAX_CONNECTIONS)]
    else:
        held = [connect(served.port, handshake(served)) for _ in range(200)]
        answers = Counter(answer(each) for each in held)
        assert answers == {"101 ": MAX_WEBSOCKETS - 1, "503 " + REFUSED: 200 - (MAX_WEBSOCKETS - 1)}
    # The page that was there is kept up to date, and another one is served.
    append(run / "metrics.jsonl", *(metric(i, sampling_hz=7777.0) for i in range(20, 25)))
    expect(page.locator("[data-field=sampling_hz]")).to_have_text("7,777")
    if kind == "connections":
        expect(look(served.address).locator("[data-field=sampling_hz]")).to_have_text("7,777")
    assert served.get("/")[0] == 200
    assert len(server.net_connections()) <= MAX_CONNECTIONS + 1  # and the listener
    assert server.memory_info().rss - rss_before < 60e6
    for each in held:
        each.close()
    # Room for a websocket comes back.
    if kind == "websockets":
        wait_until(lambda: answer(connect(served.port, handshake(served))) == "101 ", "room for another page")
    assert look.problems == []


@pytest.mark.full
def test_pages_that_no_browser_opens_take_little_memory(serve: Serve, look: Look, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    expect.set_options(timeout=1000 * START_GUARD_S)
    run = write_run(tmp_path / "run", 20)
    served = serve(run)
    server = psutil.Process(served.process.pid)
    page = look(served.address)
    expect(page.locator("[data-field=sampling_hz]")).to_contain_text("3,")
    rss_before = server.memory_info().rss
    for _ in range(4 * MAX_UNOPENED):
        check(served.get("/")[0])
    assert server.memory_info().rss - rss_before < 60e6
    append(run / "metrics.jsonl", *(metric(i, sampling_hz=7777.0) for i in range(20, 25)))
    for each in (page, look(served.address)):
        expect(each.locator("[data-field=sampling_hz]")).to_have_text("7,777")
    assert look.problems == []


def handshake(served: Served) -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    return (
        "GET /_nicegui_ws/socket.io/?EIO=4&transport=websocket HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{served.port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
    ).encode()


def answer(connection: socket.socket) -> str:
    """Return the status of an answer, and the text of a refusal."""
    head, _, body = connection.recv(65536).partition(b"\r\n\r\n")
    status = head.split()[1].decode()
    return f"{status} {body.decode() if status == '503' else ''}"


class _Held:
    """A connection that waits for its request."""

    def __init__(self, address: str, ended: list[_Held]) -> None:
        self.address, self._ended = address, ended

    def give_up(self) -> None:
        self._ended.append(self)


def test_the_address_with_most_connections_makes_room() -> None:
    connections, ended = Connections(), list[_Held]()
    addresses = ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.3", "10.0.0.2"]
    held: list[Any] = [_Held(address, ended) for address in addresses]
    connections.idle = dict.fromkeys(held)
    assert connections.make_room(MAX_CONNECTIONS, held[-1])
    assert ended == []
    assert connections.make_room(MAX_CONNECTIONS + 1, held[-1])
    assert ended == [held[1]]
    connections.idle = {held[-1]: None}
    assert not connections.make_room(MAX_CONNECTIONS + 1, held[-1])  # all others wait for an answer


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1"])
def test_no_other_address_has_all_websockets(address: str) -> None:
    connections, made = Connections(), 0
    while connections.may_open_websocket(address):
        made += 1
        socket_of: Any = object()
        connections.websockets[socket_of] = address
    assert made == (MAX_WEBSOCKETS if is_loopback(address) else MAX_WEBSOCKETS // 2)
    assert connections.may_open_websocket("10.0.0.2") == (not is_loopback(address))


# --- the page of `spreeze watch` -----------------------------------------------------------------------------------


def test_page_of_a_policy_closes_requests_that_do_not_end(connect: Connect) -> None:
    with WatchPage("a policy") as page:
        port, _, path = page.url.rpartition(":")[2].partition("/")
        ask = f"GET /{path} HTTP/1.0\r\n\r\n".encode()

        def serves() -> None:
            assert b"a policy" in received(connect(int(port), ask))

        names = [
            name for name in SLOW if "after a request" not in name and "body" not in name and "chunks" not in name
        ]
        connections = {name: connect(int(port), SLOW[name][0]) for name in names}
        wait_for_ends(connections, {name: SLOW[name][1] for name in names if SLOW[name][1]}, serves)
        held = [connect(int(port), GET) for _ in range(3 * MAX_WATCH_CONNECTIONS)]
        serves()
        assert received(held[0]) == b""  # it was the first to make room


def received(connection: socket.socket) -> bytes:
    """Return all that comes until the server closes a connection."""
    return b"".join(iter(lambda: connection.recv(65536), b""))
