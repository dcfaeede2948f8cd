"""The page of `spreeze watch`: live pictures of one policy, for browsers on this machine only.

In: JPEGs. Out: a page whose address holds a secret token; without it nothing is served. A request has to be there
some seconds after its connection was opened. When there are too many connections, the one that has waited longest for
a request makes room.
"""

from __future__ import annotations

import contextlib
import hmac
import html
import secrets
import socket
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

BOUNDARY = "picture"
SEND_LIMIT_S = 10.0  # a browser that accepts no data for so long is gone
REQUEST_S = 5.0  # for a whole request, which has a few hundred bytes
MAX_CONNECTIONS = 32  # a thread each; a browser has one or two

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="referrer" content="no-referrer">
<style>body {{ margin: 0; background: #111; color: #ddd; font: 16px system-ui, sans-serif; text-align: center }}
h1 {{ font-size: 18px; font-weight: 600 }}
img {{ max-width: 100vw; max-height: 85vh; min-height: 50vh }}</style></head>
<body><h1>{title}</h1><img src="/stream?token={token}" alt="the policy, live"></body></html>
"""


class WatchPage:
    """A server on the loopback address, which serves the page and its stream of pictures."""

    def __init__(self, title: str) -> None:
        self._token = secrets.token_urlsafe(16)
        self._html = PAGE.format(title=html.escape(title), token=self._token).encode()
        self._changed = threading.Condition()
        self._jpeg, self._number, self._browsers, self._is_over = b"", 0, 0, False
        page = self

        class Handler(_Handler):
            """Handles requests for this page."""

            owner = page

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """The address, with its token."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/?token={self._token}"

    def __enter__(self) -> WatchPage:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def show(self, jpeg: bytes) -> None:
        """Show the next picture."""
        with self._changed:
            self._jpeg, self._number = jpeg, self._number + 1
            self._changed.notify_all()

    def wait_for_browser(self) -> None:
        """Wait until a browser shows the page."""
        with self._changed:
            self._changed.wait_for(lambda: self._browsers > 0)

    def knows(self, token: str) -> bool:
        """Return whether a token is the page's."""
        return hmac.compare_digest(token.encode(), self._token.encode())

    @property
    def content(self) -> bytes:
        """The page itself."""
        return self._html

    def count_browsers(self, change: int) -> None:
        """Change the number of connected browsers by 1 or -1."""
        with self._changed:
            self._browsers += change
            self._changed.notify_all()

    def next_picture(self, seen: int) -> tuple[int, bytes] | None:
        """Wait for a picture newer than the given one; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._number > seen or self._is_over)
            return None if self._number <= seen else (self._number, self._jpeg)


class _Server(ThreadingHTTPServer):
    """Closes connections whose request takes too long."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._waiting: dict[socket.socket, float] = {}
        """Until when each has time for its request, the oldest first."""

    def verify_request(self, request: Any, _client_address: Any) -> bool:
        """Return whether there is room for a new connection, of which there is if another one waits."""
        with self._lock:
            has_room = len(self._open) < MAX_CONNECTIONS
            if not has_room and self._waiting:
                self._cut(next(iter(self._waiting)))
                has_room = True
            if has_room:
                self._open.add(request)
                self._waiting[request] = time.monotonic() + REQUEST_S
        if not has_room:
            request.setblocking(False)
            with contextlib.suppress(OSError):
                request.send(b"HTTP/1.0 503 Too many connections\r\n\r\nThere are too many connections.\n")
        return has_room

    def service_actions(self) -> None:
        """Close what has waited too long. Called twice per second."""
        with self._lock:
            for request, until in list(self._waiting.items()):
                if time.monotonic() > until:
                    self._cut(request)

    def begin_answer(self, request: socket.socket) -> None:
        """The request is there."""
        with self._lock:
            self._waiting.pop(request, None)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that ends."""
        with self._lock:
            self._waiting.pop(request, None)
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print what is wrong here, and nothing about a browser that has gone."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def _cut(self, request: socket.socket) -> None:
        del self._waiting[request]
        self._open.discard(request)
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)  # its thread, which reads, ends and closes it


class _Handler(BaseHTTPRequestHandler):
    owner: WatchPage
    timeout = SEND_LIMIT_S

    def do_GET(self) -> None:
        """Serve the page or its pictures, to requests with the token."""
        assert isinstance(self.server, _Server)
        self.server.begin_answer(self.request)
        parts = urlsplit(self.path)
        token = parse_qs(parts.query).get("token", [""])[0]
        if not self.owner.knows(token):
            self.send_error(HTTPStatus.FORBIDDEN, "the printed address contains a token: use the whole address")
        elif parts.path == "/":
            self._send_page()
        elif parts.path == "/stream":
            self._send_pictures()
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _send_page(self) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(self.owner.content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(self.owner.content)

    def _send_pictures(self) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", f"multipart/x-mixed-replace; boundary={BOUNDARY}")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.owner.count_browsers(1)
        try:
            seen = 0
            while (newer := self.owner.next_picture(seen)) is not None:
                seen, jpeg = newer
                head = f"--{BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(jpeg)}\r\n\r\n"
                self.wfile.write(head.encode() + jpeg + b"\r\n")
        except OSError:
            pass  # the browser has gone
        finally:
            self.owner.count_browsers(-1)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: requests do not belong on the user's terminal."""
