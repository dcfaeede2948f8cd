"""Access control: who may see the dashboard, and who may stop a run.

On a loopback address every user of the machine may see it; on any other address each request needs the token of the
printed address, which a cookie keeps for the page's own requests. Stopping a run always needs the token. Requests
that another web site makes a browser send are refused, by their Host and Origin. Only the page's own paths exist.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

FRAME_PATH = "/frame"
PATHS = ("/", FRAME_PATH, "/favicon.ico")
PREFIXES = ("/_nicegui/", "/_nicegui_ws/")  # NiceGUI's scripts and its websocket

# The page loads from and sends to this server only, and no other page may frame it. Without 'unsafe-eval' it stays
# empty: NiceGUI's script evaluates what the server sends (run_javascript, handlers of events, properties), and its
# Vue compiles the templates of elements in the browser. 'unsafe-inline': NiceGUI's page has its data in a script.
# What the page shows of a run is escaped, so that neither gives a run a way to run scripts.
CONTENT_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", CONTENT_POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),  # the address holds the token
    (b"x-content-type-options", b"nosniff"),
)

log = logging.getLogger(__name__)


class Access:
    """The token, and which requests need it."""

    def __init__(self, host: str, port: int, token: str | None = None) -> None:
        self.host, self.port = host, port
        self.token = token or secrets.token_urlsafe(18)
        self.is_loopback = is_loopback(host)
        # Cookies are shared between the ports of a host.
        self.cookie = f"spreeze-token-{port}"
        # Lets the page load pictures without knowing the token.
        self.frame_key = hmac.new(self.token.encode(), b"frames", "sha256").hexdigest()[:24]

    @property
    def address(self) -> str:
        """The address to open in a browser, with the token."""
        import socket

        binds_all = self.host in ("", "0.0.0.0", "::")  # noqa: S104 (asked for with --host, and then with a token)
        host = socket.gethostname() if binds_all else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/?token={quote(self.token)}"

    def is_token(self, text: str | None) -> bool:
        """Compare in constant time, so that the duration reveals nothing about the token."""
        return text is not None and hmac.compare_digest(text.encode(), self.token.encode())

    def is_frame_key(self, text: str | None) -> bool:
        """Return whether a request for a picture comes from one of our pages."""
        return text is not None and hmac.compare_digest(text.encode(), self.frame_key.encode())

    def may_stop(self, token: str | None, cookie: str | None) -> bool:
        """Return whether a page may stop the run: only if it was opened with the token."""
        return self.is_token(token) or (not self.is_loopback and self.is_token(cookie))


class Gate:
    """Wraps the whole application, and refuses requests that are not allowed."""

    def __init__(self, app: Application, access: Access) -> None:
        self.app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or websocket."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        token = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [None])[0]
        refusal = self._refusal(scope["path"], headers, token)
        if refusal is not None:
            await _refuse(scope, send, *refusal)
            return
        given = self._access.is_token(token) and not self._access.is_loopback
        await self._serve(scope, receive, send, set_cookie=given)

    def _refusal(self, path: str, headers: dict[str, str], token: str | None) -> tuple[int, str] | None:
        access = self._access
        host = _host_of(headers.get("host", ""))
        if access.is_loopback and not is_loopback(host):
            return 403, "This address is not the dashboard's."
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            return 403, "Other sites may not use the dashboard."
        if not access.is_loopback and not (
            access.is_token(token) or access.is_token(cookie_in(headers, access.cookie))
        ):
            return 403, "Open the dashboard with the address that was printed: it ends with ?token=..."
        if not is_served(path):
            return 404, "There is no such page."
        return None

    async def _serve(self, scope: Scope, receive: Receive, send: Send, set_cookie: bool) -> None:
        began = False

        async def send_on(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                message["headers"] = [*message.get("headers", []), *_HEADERS]
                if set_cookie:
                    cookie = f"{self._access.cookie}={self._access.token}; HttpOnly; SameSite=Strict; Path=/"
                    message["headers"].append((b"set-cookie", cookie.encode()))
            await send(message)

        try:
            await self.app(scope, receive, send_on)
        except Exception:
            log.exception("a request failed")
            if not began and scope["type"] == "http":
                await _refuse(
                    scope, send, 500, "The dashboard could not answer this request; its log has the reason."
                )


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine's loopback."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_served(path: str) -> bool:
    """Return whether a path is served; one with . or .. parts is not, however they are encoded."""
    once = unquote(path)
    if any(
        part in ("..", ".") for text in (path, once, unquote(once)) for part in text.replace("\\", "/").split("/")
    ):
        return False
    return path in PATHS or (path.startswith(PREFIXES) and "\0" not in once)


def cookie_in(headers: dict[str, str], name: str) -> str | None:
    """Return a cookie of a request."""
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return None
    return None if morsel is None else morsel.value


def _host_of(header: str) -> str:
    if header.startswith("["):
        return header.partition("]")[0].lstrip("[")
    return header.partition(":")[0]


async def _refuse(scope: Scope, send: Send, status: int, text: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    body = text.encode() + b"\n"
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        *_HEADERS,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope.get("method") == "HEAD" else body})
