"""Dashboards and pages, as tests see them."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import pytest

START_GUARD_S = 60.0  # against a hang: a loaded machine may take many times what an idle one does


@dataclass
class Served:
    """A dashboard under way."""

    process: Any
    """A `subprocess.Popen`, or a fork that is used as one."""
    address: str
    """As it was printed, with the token."""
    messages: list[dict[str, Any]]
    read_messages: Callable[[], None] = lambda: None
    output: IO[bytes] | None = None

    def said(self) -> str:
        """Return what it has printed so far."""
        return "" if self.output is None else os.pread(self.output.fileno(), 1 << 20, 0).decode()

    @property
    def origin(self) -> str:
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def port(self) -> int:
        port = urlsplit(self.address).port
        assert port is not None
        return port

    @property
    def token(self) -> str:
        return self.address.partition("token=")[2]

    def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, str, dict[str, str]]:
        """Ask for a path, exactly as it is written."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=START_GUARD_S)
        connection.putrequest("GET", path, skip_host="Host" in (headers or {}))
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        content = response.read().decode("utf-8", "replace")
        connection.close()
        return response.status, content, {name.lower(): value for name, value in response.getheaders()}


def wait_until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + START_GUARD_S
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"there is still not: {what}")
        time.sleep(0.01)


class Look:
    """Opens pages, and keeps what went wrong on them."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self._browser, self._folder = browser, folder
        self.problems: list[str] = []
        self.hosts: set[str] = set()

    def __call__(self, address: str, width: int = 1440, scheme: str = "light") -> Any:
        """Open an address in a browser of its own, and wait for the page."""
        context = self._browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = context.new_page()
        page.set_default_timeout(1000 * START_GUARD_S)
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        page.goto(address)
        page.locator("#content").wait_for()
        return page

    def _note(self, kind: str, text: str) -> None:
        if kind == "error":
            self.problems.append(text)

    def shot(self, page: Any, name: str) -> Path:
        """Keep a picture of a page."""
        path = self._folder / f"{name}.png"
        page.screenshot(path=path, full_page=True)
        return path


@contextlib.contextmanager
def open_chromium() -> Iterator[Any]:
    """Start Chromium, as it is installed here."""
    found = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    if found is None and "SPREEZE_REQUIRE_BROWSER" not in os.environ:
        pytest.skip("needs Chromium, which is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
