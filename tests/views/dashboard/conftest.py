"""Dashboards as real servers, and a real browser to look at them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import Look, Served, environment, free_port, open_chromium, wait_until


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Start `spreeze dashboard WORDS` in a folder of its own."""
    started: list[subprocess.Popen[str]] = []
    folder = tmp_path / "where-the-user-is"
    folder.mkdir()

    def start(*words: object, port: int = 0) -> Served:
        command = [sys.executable, "-m", "spreeze", "dashboard", *map(str, words), "--port", str(port or free_port())]
        process = subprocess.Popen(
            command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        started.append(process)
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.search(r"http://\S+", said)
        assert found, said + process.stdout.read()
        return Served(process, found[0], [])

    yield start
    for process in started:
        _end(process)
    assert list(folder.iterdir()) == []  # NiceGUI has left nothing


@pytest.fixture
def serve_live() -> Iterator[Callable[..., Served]]:
    """Start the dashboard of a run under way, as the supervisor does."""
    started: list[tuple[subprocess.Popen[str], int]] = []

    def start(run_dir: Path, **fields: Any) -> Served:
        read, write = os.pipe()
        os.set_blocking(read, False)
        command = [sys.executable, str(Path(__file__).parent / "live_run.py"), str(run_dir), str(write)]
        process = subprocess.Popen(
            [*command, json.dumps({"dashboard_port": free_port(), **fields})],
            env=environment(),
            stdin=subprocess.PIPE,
            pass_fds=(write,),
            text=True,
        )
        os.close(write)
        started.append((process, read))
        messages: list[dict[str, Any]] = []
        served = Served(process, "", messages)
        partial = b""

        def read_messages() -> None:
            nonlocal partial
            with contextlib.suppress(BlockingIOError):
                *lines, partial = (partial + os.read(read, 65536)).split(b"\n")
                messages.extend(json.loads(line) for line in lines)

        def address() -> str | None:
            read_messages()
            assert process.poll() is None, "the dashboard has ended"
            return next((message["url"] for message in messages if message["kind"] == "address"), None)

        wait_until(address, "an address")
        served.address = address() or ""
        served.read_messages = read_messages
        return served

    yield start
    for process, read in started:
        _end(process)
        os.close(read)


# Of a module, not of all: while Playwright is there, its event loop is in everybody's way.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, as it is installed here."""
    with open_chromium() as chromium:
        yield chromium


@pytest.fixture
def look(browser: Any, tmp_path: Path) -> Iterator[Look]:
    looker = Look(browser, tmp_path)
    yield looker
    for context in list(browser.contexts):
        context.close()


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
