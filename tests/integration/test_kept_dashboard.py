"""The dashboard's address in a terminal, and a dashboard that stays after its run."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import termios
import threading
import urllib.request
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Running, Spreeze

pytest.importorskip("nicegui")

SHOWN = {"no_dashboard": None, "dashboard": True, "no_view": True, "keep_dashboard": True}
ADDRESS = re.compile(r"http://\S+token=[\w-]{24}")


class Screen:
    """A terminal of 80 x 24 characters, and everything that was written to it."""

    def __init__(self) -> None:
        self._ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self._content = b""
        self._reader = threading.Thread(target=self._read, daemon=True)

    def follow(self) -> None:
        """Read what the command writes, which has its own end by now."""
        os.close(self.theirs)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                self._content += os.read(self._ours, 65536)
            except OSError:  # the command has ended
                os.close(self._ours)
                return

    def text(self) -> str:
        """Return it without colours and movements of the cursor."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._content.decode(errors="replace"))


@pytest.fixture
def screen() -> Iterator[Screen]:
    return Screen()


def _wait_for_kept_page(spreeze: Spreeze, run: Running, screen: Screen) -> str:
    spreeze.wait_until(
        lambda: re.search(r"stays until Ctrl-C, at\s+http\S+\s", screen.text()), "a page that stays", run=run
    )
    found = ADDRESS.search(screen.text())
    assert found, screen.text()
    return found[0]


def test_dashboard_stays_after_its_run_until_ctrl_c(spreeze: Spreeze, screen: Screen) -> None:
    words = spreeze.small(max_updates=50, **SHOWN)
    run = spreeze.start("train", "Toy/Point-v0", *words, terminal=screen.theirs, environment={"TERM": "xterm"})
    screen.follow()
    address = _wait_for_kept_page(spreeze, run, screen)

    with urllib.request.urlopen(address, timeout=60) as page:
        assert page.status == 200
    assert spreeze.read("summary.json")["stop_reason"] == "max_updates"
    assert not (spreeze.run_dir / "lock").exists()  # the run may be resumed meanwhile
    os.kill(run.process.pid, signal.SIGINT)

    assert run.finish().returncode == 0
    text = screen.text()
    assert text.index("Look: spreeze dashboard run") < text.index("stays until Ctrl-C")
    # The address is in the first panel, and every panel has it whole.
    panels = text.split("╭")[1:]
    assert any(ADDRESS.search(panel.partition("╰")[0]) for panel in panels[:2]), panels[0]
    assert all(ADDRESS.search(panel.partition("╰")[0]) for panel in panels[2:])


def test_who_has_ended_a_run_by_ctrl_c_may_look_at_it(spreeze: Spreeze, screen: Screen) -> None:
    words = spreeze.small(max_seconds=90, **SHOWN)
    run = spreeze.start("train", "Toy/Point-v0", *words, terminal=screen.theirs, environment={"TERM": "xterm"})
    screen.follow()
    spreeze.wait_for_policy(run)
    os.kill(run.process.pid, signal.SIGINT)
    _wait_for_kept_page(spreeze, run, screen)

    os.kill(run.process.pid, signal.SIGTERM)

    assert run.finish().returncode == 130
    assert spreeze.read("summary.json")["stop_reason"] == "interrupted"
