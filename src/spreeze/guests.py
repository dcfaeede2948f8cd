"""Processes that a run can do without: the viewer and the dashboard.

In: who is wanted. Out: processes that come and go; whatever happens to one is told in a warning, and the run goes on.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from spreeze.channels.control import ControlChannel
from spreeze.child import Child, name_of
from spreeze.errors import one_line

GuestRole = Literal["view", "dashboard"]
Start = Callable[[GuestRole], Child]
"""How one is started. Passed at each call: kept, it would be a circle, which holds descriptors for a while."""

MAX_STARTS = 2  # what fails a second time would fail a third time
HANG_S = 120.0  # as for other processes: a reset may take long, and on a full machine a guest gets little time


@dataclass
class _Guest:
    """A guest that is wanted, or was."""

    role: GuestRole
    child: Child | None = None
    starts: int = 0
    is_wanted: bool = True
    failure: str | None = None
    """What it said about its own end."""


class Guests:
    """Starts, watches and dismisses them. Never raises because of one."""

    def __init__(self, control: ControlChannel) -> None:
        self._control = control
        self._guests: dict[GuestRole, _Guest] = {}
        self._unsaid: list[tuple[str, dict[str, Any]]] = []

    @property
    def children(self) -> list[Child]:
        """Those that are there."""
        return [guest.child for guest in self._guests.values() if guest.child is not None]

    def add(self, role: GuestRole, start: Start) -> None:
        """Want a guest. One that has left or failed gets another chance."""
        guest = self._guests.setdefault(role, _Guest(role))
        guest.is_wanted = True
        if guest.child is None:
            guest.starts = 0
            self._begin(guest, start)

    def remove(self, role: GuestRole) -> None:
        """Ask a guest to leave; it is let go of when it has ended."""
        guest = self._guests.get(role)
        if guest is not None and guest.child is not None:
            guest.is_wanted = False
            self._control.dismiss(guest.child.slot)

    def turn(self, start: Start) -> None:
        """Let go of those that have ended or hang; start again what was cut off."""
        for guest in self._guests.values():
            child = guest.child
            if child is None:
                continue
            if child.process.poll() is None:
                if self._control.silence_s(child.slot) <= HANG_S:
                    continue
                child.kill()
                guest.failure = f"it has shown no sign of life for {HANG_S:.0f} s"
            self._end(guest, child, start)

    def read_messages(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield names and what guests have said since the last time, and warnings about those that have failed."""
        for guest in self._guests.values():
            if guest.child is not None:
                self._unsaid += self._read(guest, guest.child)
        unsaid, self._unsaid = self._unsaid, []
        yield from unsaid

    def _read(self, guest: _Guest, child: Child) -> Iterator[tuple[str, dict[str, Any]]]:
        for message in child.messages.read():
            if message["kind"] == "ready":
                child.is_ready = True
            elif message["kind"] == "error":
                guest.failure = message["reason"]
            else:
                yield child.name, message

    def _begin(self, guest: _Guest, start: Start) -> None:
        guest.starts += 1
        guest.failure = None
        try:
            guest.child = start(guest.role)
        except OSError as error:  # no process or descriptor is left: the run needs them more
            self._warn(name_of(guest.role, 0), f"the run goes on without it: {one_line(error)}")

    def _end(self, guest: _Guest, child: Child, start: Start) -> None:
        self._unsaid += self._read(guest, child)  # its last words
        code, has_raised = child.process.returncode, guest.failure is not None and child.process.returncode == 1
        guest.child = None
        if guest.is_wanted and (code != 0 or guest.failure is not None):
            # What raised would raise again; what was killed may have been in somebody's way by chance.
            comes_back = not has_raised and guest.starts < MAX_STARTS
            going_on = "it is started again" if comes_back else "the run goes on without it"
            self._warn(child.name, f"{going_on}: {guest.failure or how_it_ended(child)}")
            if comes_back:
                self._begin(guest, start)
        child.close()

    def _warn(self, name: str, what: str) -> None:
        self._unsaid.append((name, {"kind": "event", "event": "warning", "reason": f"{name} failed, {what}"}))


def how_it_ended(child: Child) -> str:
    """Say how a process ended that has left no words."""
    code = child.process.returncode
    how = f"it was killed by {signal.Signals(-code).name}" if code < 0 else f"it exited with code {code}"
    return f"{how}; its output is in {child.log_path}"
