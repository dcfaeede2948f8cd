"""Processes that a run can do without: the evaluator, the viewer, the dashboard and the gateway to other machines.

In: which are wanted. Out: processes that come and go. A failure is recorded as a warning, the process is restarted as
`restart_policy.py` says, and the run continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from spreeze.channels.brief import name_of
from spreeze.channels.control import ControlChannel
from spreeze.errors import one_line
from spreeze.supervision.launch import Child, NamedMessage, OptionalRole
from spreeze.supervision.restart_policy import RARELY_S, Attention, RestartPolicy

Start = Callable[[OptionalRole], Child]
"""How one is started."""

# Unproductive starts in a row. A run needs its evaluations more than what only shows it.
PATIENCE: Mapping[OptionalRole, int] = {"evaluator": 5, "viewer": 2, "dashboard": 2, "gateway": 5}
WITHOUT: Mapping[OptionalRole, str] = {
    "evaluator": f" and without evaluations; it is tried every {RARELY_S / 60:g} minutes",
    "gateway": f" and without other machines; it is tried every {RARELY_S / 60:g} minutes",
}
SHOWN_S = 30.0  # a viewer or a dashboard that was there for so long was worth its start


class _Failure(NamedTuple):
    reason: str
    traceback: str = ""
    """Its own, if it has raised."""


@dataclass
class _OptionalProcess:
    """An optional process that is wanted, or was."""

    role: OptionalRole
    restarts: RestartPolicy
    child: Child | None = None
    started_at: float = 0.0
    is_wanted: bool = True
    was_productive: bool = False
    """Whether its last start was productive (`RestartPolicy`)."""
    failure: _Failure | None = None
    """Why it ended, as far as known."""


class OptionalProcesses:
    """Starts, watches and dismisses them. Never raises because of one."""

    def __init__(self, control: ControlChannel, start: Start) -> None:
        self._control, self._start = control, start
        self._processes: dict[OptionalRole, _OptionalProcess] = {}
        self._received: list[NamedMessage] = []

    @property
    def children(self) -> list[Child]:
        """Those that are there."""
        return [process.child for process in self._processes.values() if process.child is not None]

    def add(self, role: OptionalRole) -> None:
        """Start a process; one that is there already stays. One that has left or failed is started again."""
        process = self._processes.setdefault(role, _OptionalProcess(role, RestartPolicy(PATIENCE[role])))
        process.is_wanted = True
        if process.child is None:
            process.restarts = RestartPolicy(PATIENCE[role])
            self._begin(process)

    def turn(self, hang_s: float, attention: Attention) -> None:
        """Let go of those that have ended or hang; start again what is wanted and due."""
        for process in self._processes.values():
            if process.child is not None:
                self._look_at(process, process.child, hang_s, attention)
            if process.child is None and process.is_wanted and process.restarts.may_start(time.monotonic()):
                self._begin(process)

    def read_messages(self) -> Iterator[NamedMessage]:
        """Yield what they have sent since the last time, and warnings about those that have failed."""
        for process in self._processes.values():
            if process.child is not None:
                self._receive(process, process.child)
        received, self._received = self._received, []
        yield from received

    def _receive(self, process: _OptionalProcess, child: Child) -> None:
        received = child.receive()
        process.was_productive |= any(message["kind"] == "evaluation" for _, message in received)
        self._received += received

    def _begin(self, process: _OptionalProcess) -> None:
        process.failure, process.was_productive, process.started_at = None, False, time.monotonic()
        try:
            process.child = self._start(process.role)
        except OSError as error:  # no process or descriptor is left: the run needs them more
            self._record_failure(process, _Failure(one_line(error)))

    def _look_at(self, process: _OptionalProcess, child: Child, hang_s: float, attention: Attention) -> None:
        silence_s = attention.seen_s(self._control.silence_s(child.slot))
        # An evaluator is for evaluations, which it sends.
        if process.role != "evaluator" and time.monotonic() - silence_s - process.started_at >= SHOWN_S:
            process.was_productive = True
        hang_s = child.silence_limit_s(hang_s)
        if child.process.poll() is None:
            if silence_s <= hang_s:
                return
            child.kill()
            process.failure = _Failure(f"it has shown no sign of life for {hang_s:g} s")
        self._end(process, child)

    def _end(self, process: _OptionalProcess, child: Child) -> None:
        self._receive(process, child)  # its last words
        process.child = None
        if child.raised is not None:
            process.failure = _Failure(child.raised.reason, child.raised.traceback)
        if child.process.returncode == 0 and process.failure is None and process.role != "evaluator":
            process.is_wanted = False  # it has seen that there is nothing for it to do
        else:
            self._record_failure(process, process.failure or _Failure(child.describe_exit()))
        child.close()

    def _record_failure(self, process: _OptionalProcess, failure: _Failure) -> None:
        now, had_given_up = time.monotonic(), process.restarts.has_given_up
        if failure.traceback and process.role in ("viewer", "dashboard"):
            # A viewer that cannot draw, or a dashboard that cannot serve, could not the next time either.
            process.restarts.give_up(now)
        elif process.was_productive:
            process.restarts.record_productive(process.started_at)
        else:
            process.restarts.record_failure(now, process.started_at)
        if had_given_up and process.restarts.has_given_up:
            return  # there is a warning of this already
        consequence = "it is restarted"
        if process.restarts.has_given_up:
            consequence = "the run continues without it"
            consequence += WITHOUT.get(process.role, "")
        name = name_of(process.role, 0)
        warning = {"reason": f"{name} failed, {consequence}: {failure.reason}", "traceback": failure.traceback}
        self._received.append((name, {"kind": "event", "event": "warning", **warning}))
