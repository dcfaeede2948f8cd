"""Processes that a run can do without: the evaluator, the viewer and the dashboard.

In: who is wanted. Out: processes that come and go; whatever happens to one is told in a warning, it is started again
as `recovery.py` says, and the run goes on.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from spreeze.channels.brief import name_of
from spreeze.channels.control import ControlChannel
from spreeze.errors import one_line
from spreeze.supervision.launch import Child
from spreeze.supervision.restart_policy import RARELY_S, Attention, Recovery

GuestRole = Literal["evaluator", "viewer", "dashboard"]
Start = Callable[[GuestRole], Child]
"""How one is started. Passed at each call: kept, it would be a circle, which holds descriptors for a while."""

# An evaluator is worth some trouble; what only shows the run, and fails twice, may rest for a while.
PATIENCE: Mapping[GuestRole, int] = {"evaluator": 5, "viewer": 2, "dashboard": 2}
SHOWN_S = 30.0  # a viewer or a dashboard that was there for so long was worth its start
START_S = 120.0  # to import libraries, before it can give a sign of life: a cold disk may be slow


class _Failure(NamedTuple):
    reason: str
    traceback: str = ""
    """Its own, if it has raised."""


@dataclass
class _Guest:
    """A guest that is wanted, or was."""

    role: GuestRole
    recovery: Recovery
    child: Child | None = None
    started_at: float = 0.0
    is_wanted: bool = True
    has_borne_fruit: bool = False
    """Whether it was worth its last start."""
    failure: _Failure | None = None
    """What is known of its end, before it is let go of."""


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
        guest = self._guests.setdefault(role, _Guest(role, Recovery(PATIENCE[role])))
        guest.is_wanted = True
        if guest.child is None:
            guest.recovery = Recovery(PATIENCE[role])
            self._begin(guest, start)

    def remove(self, role: GuestRole) -> None:
        """Ask a guest to leave; it is let go of when it has ended."""
        guest = self._guests.get(role)
        if guest is not None:
            guest.is_wanted = False
            if guest.child is not None:
                self._control.dismiss(guest.child.slot)

    def turn(self, start: Start, hang_s: float, attention: Attention) -> None:
        """Let go of those that have ended or hang; start again what is wanted and due."""
        for guest in self._guests.values():
            if guest.child is not None:
                self._look_at(guest, guest.child, hang_s, attention)
            if guest.child is None and guest.is_wanted and guest.recovery.may_start(time.monotonic()):
                self._begin(guest, start)

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
                guest.failure = _Failure(message["reason"], message["traceback"])
            else:
                guest.has_borne_fruit |= message["kind"] == "evaluation"
                yield child.name, message

    def _begin(self, guest: _Guest, start: Start) -> None:
        guest.failure, guest.has_borne_fruit, guest.started_at = None, False, time.monotonic()
        try:
            guest.child = start(guest.role)
        except OSError as error:  # no process or descriptor is left: the run needs them more
            self._note_failure(guest, _Failure(one_line(error)))

    def _look_at(self, guest: _Guest, child: Child, hang_s: float, attention: Attention) -> None:
        silence_s = attention.seen_s(self._control.silence_s(child.slot))
        # An evaluator is for evaluations, which it sends.
        if guest.role != "evaluator" and time.monotonic() - silence_s - guest.started_at >= SHOWN_S:
            guest.has_borne_fruit = True
        hang_s = silence_limit_s(child, hang_s)
        if child.process.poll() is None:
            if silence_s <= hang_s:
                return
            child.kill()
            guest.failure = _Failure(f"it has shown no sign of life for {hang_s:g} s")
        self._end(guest, child)

    def _end(self, guest: _Guest, child: Child) -> None:
        self._unsaid += self._read(guest, child)  # its last words
        guest.child = None
        if child.process.returncode == 0 and guest.failure is None and guest.role != "evaluator":
            guest.is_wanted = False  # it has seen that there is nothing for it to do
        elif guest.is_wanted:
            self._note_failure(guest, guest.failure or _Failure(how_it_ended(child)))
        child.close()

    def _note_failure(self, guest: _Guest, failure: _Failure) -> None:
        now, was_hopeless = time.monotonic(), guest.recovery.is_hopeless
        if failure.traceback and guest.role != "evaluator":
            # What cannot draw or serve could not the next time; what was killed was in somebody's way by chance.
            guest.recovery.give_up(now)
        elif guest.has_borne_fruit:
            guest.recovery.note_fruit(guest.started_at)
        else:
            guest.recovery.note_failure(now, guest.started_at)
        if was_hopeless and guest.recovery.is_hopeless:
            return  # that it goes on without was said
        going_on = "it is started again"
        if guest.recovery.is_hopeless:
            going_on = "the run goes on without it"
            if guest.role == "evaluator":
                going_on += f" and without evaluations; it is tried every {RARELY_S / 60:g} minutes"
        name = name_of(guest.role, 0)
        told = {"reason": f"{name} failed, {going_on}: {failure.reason}", "traceback": failure.traceback}
        self._unsaid.append((name, {"kind": "event", "event": "warning", **told}))


def silence_limit_s(child: Child, hang_s: float) -> float:
    """Return after how long a process that gives no sign of life hangs."""
    return hang_s if child.is_ready else max(hang_s, START_S)


def how_it_ended(child: Child) -> str:
    """Say how a process ended that has left no words."""
    code = child.process.returncode
    how = f"it was killed by {_name_of_signal(-code)}" if code < 0 else f"it exited with code {code}"
    return f"{how}; its output is in {child.log_path}"


def _name_of_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # of those for real time, not all have names
