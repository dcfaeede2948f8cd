"""Bounds on the connections of the server: how many there are, and how long each may take over a request.

uvicorn has no such limits: `timeout_keep_alive` starts again with every byte, so that a client that sends one now and
then keeps its connection for ever, and `limit_concurrency` refuses everybody while there are many of those. Here a
request has to be there REQUEST_S after its connection is ready for it, and what is sent has to be received. When
there are too many connections, the one goes that has waited longest for a request, of the address that has most of
them: whoever asks for something is answered.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from typing import Any, Literal

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.auto import AutoWebSocketsProtocol

from spreeze.views.dashboard.access import is_loopback

REQUEST_S = 5.0  # for headers and body; also how long a connection stays open without a request
STALL_S = 10.0  # for 48 KB of an answer, which is what may wait here: a browser that is slower than that is gone
MAX_CONNECTIONS = 256  # a page has up to seven
MAX_WEBSOCKETS = 64  # one for each page that is open
MAX_HEADER_BYTES = 1 << 15
MAX_MESSAGE_BYTES = 1 << 18  # of a websocket; what pages send has a few hundred

REFUSED = "There are too many connections to the dashboard: close some of its pages, and load this one again.\n"


class Connections:
    """The connections of one server."""

    def __init__(self) -> None:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = MAX_CONNECTIONS if files == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, files // 2)
        self.idle: dict[_Http, None] = {}
        """Those that wait for a whole request, in the order in which they began to."""
        self.websockets: dict[asyncio.Protocol, str] = {}
        """The address of each."""

    def make_room(self, count: int, new: _Http) -> bool:
        """Close a connection if there are too many; return whether the new one may stay."""
        if count <= self._most:
            return True
        idle = [each for each in self.idle if each is not new]
        if not idle:
            return False
        ((address, _),) = Counter(each.address for each in idle).most_common(1)
        next(each for each in idle if each.address == address).give_up()
        return True

    def may_open_websocket(self, address: str) -> bool:
        """Return whether one more is allowed. No address but this machine's own may have more than half of them."""
        own = sum(each == address for each in self.websockets.values())
        return len(self.websockets) < MAX_WEBSOCKETS and (is_loopback(address) or own < MAX_WEBSOCKETS // 2)


class _Http(H11Protocol):
    """A connection until it becomes a websocket. h11, whatever is installed: httptools has no limit of headers."""

    all: Connections
    address = ""
    _limit: asyncio.TimerHandle | None = None
    _awaited: Literal["request", "receipt"] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, if there is room."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if not self.all.make_room(len(self.connections), self):
            self._refuse()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._await(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take in a part of a request."""
        super().data_received(data)
        if self.transport.get_protocol() is self:
            self._watch()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Begin to wait for the client to receive."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """The client has received."""
        super().resume_writing()
        self._watch()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand over to the websocket, if one more is allowed."""
        if self.all.may_open_websocket(self.address):
            self._await(None)
            super().handle_websocket_upgrade(event)
        else:
            self._refuse()

    def give_up(self) -> None:
        """Close the connection, without waiting for the client to receive anything."""
        self._await(None)  # at once: others may come before it is lost, and must not choose it again
        self.transport.abort()

    def _refuse(self) -> None:
        body = REFUSED.encode()
        head = (
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nConnection: close\r\n"
            f"Retry-After: 10\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _watch(self) -> None:
        """See to it that what is awaited from the client now has a limit. One that has begun goes on."""
        if self.transport.is_closing() or self.flow.write_paused:
            self._await("receipt")
        elif self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._await("request")
        else:
            self._await(None)  # the answer is our matter

    def _await(self, what: Literal["request", "receipt"] | None) -> None:
        if what == self._awaited:
            return
        if self._limit is not None:
            self._limit.cancel()
        self.all.idle.pop(self, None)
        self._awaited, self._limit = what, None
        if what is not None:
            self._limit = self.loop.call_later(REQUEST_S if what == "request" else STALL_S, self.give_up)
        if what == "request":
            self.all.idle[self] = None


def bounded_protocols() -> dict[str, Any]:
    """Return the settings of `uvicorn.Config` for a server with these bounds."""
    connections = Connections()

    class Http(_Http):
        """A connection of this server."""

        all = connections

    class WebSocket(AutoWebSocketsProtocol):  # type: ignore[misc, valid-type]  # which one depends on what is installed
        """A websocket of this server, which ends if its client receives nothing."""

        _limit: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            """Count it."""
            super().connection_made(transport)
            connections.websockets[self] = self.client[0] if self.client else ""

        def connection_lost(self, exc: Exception | None) -> None:
            """Forget it."""
            connections.websockets.pop(self, None)
            self._cancel()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            """Begin to wait for the client to receive."""
            super().pause_writing()
            self._limit = self._limit or asyncio.get_running_loop().call_later(STALL_S, self.transport.abort)

        def resume_writing(self) -> None:
            """The client has received."""
            super().resume_writing()
            self._cancel()

        def _cancel(self) -> None:
            if self._limit is not None:
                self._limit.cancel()
                self._limit = None

    return {
        "http": Http,
        "ws": WebSocket,
        "ws_max_size": MAX_MESSAGE_BYTES,
        "h11_max_incomplete_event_size": MAX_HEADER_BYTES,
        "timeout_keep_alive": int(REQUEST_S),
    }
