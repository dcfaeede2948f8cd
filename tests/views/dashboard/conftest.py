"""Dashboards as real servers, and a real browser to look at them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forked_commands import PAGES, ForkedCommands
from servers import Look, Served, environment, free_port, open_chromium, wait_until


@pytest.fixture(scope="session")
def _page_forks() -> Iterator[ForkedCommands]:
    forks = ForkedCommands(PAGES)
    yield forks
    forks.close()


@pytest.fixture
def serve(tmp_path: Path, _page_forks: ForkedCommands) -> Iterator[Callable[..., Served]]:
    """Start `spreeze dashboard WORDS` in a folder of its own, in a fork that is past its imports or as a program."""
    yield from _serving(tmp_path / "where-the-user-is", _page_forks)


@pytest.fixture(scope="module")
def module_serve(
    tmp_path_factory: pytest.TempPathFactory, _page_forks: ForkedCommands
) -> Iterator[Callable[..., Served]]:
    """Start a dashboard that the tests of a module share."""
    yield from _serving(tmp_path_factory.mktemp("module") / "where-the-user-is", _page_forks)


def _serving(folder: Path, forks: ForkedCommands) -> Iterator[Callable[..., Served]]:
    started: list[Served] = []
    folder.mkdir()

    def start(*words: object, port: int = 0, as_program: bool = False) -> Served:
        command = ["dashboard", *map(str, words), "--port", str(port or free_port())]
        output = tempfile.TemporaryFile()  # noqa: SIM115 (it is read as long as the dashboard is there)
        process: Any
        if as_program:
            program = [sys.executable, "-m", "spreeze", *command]
            process = subprocess.Popen(program, cwd=folder, env=environment(), stdout=output, stderr=output)
        else:
            process = forks.start(command, folder, environment(), output, output)
        served = Served(process, "", [], output=output)
        started.append(served)
        wait_until(lambda: "\n" in served.said() or process.poll() is not None, "an address")
        found = re.search(r"http://\S+", served.said())
        assert found, served.said()
        served.address = found[0]
        return served

    yield start
    for served in started:
        _end(served.process)
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
        assert process.stdin is not None
        process.stdin.close()
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


def _end(process: Any) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
