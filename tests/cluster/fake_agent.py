"""An agent in the process of a test, as the head's end of it sees one; there is no Ray."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from spreeze.channels.transitions import RowLayout, Rows
from spreeze.cluster.orders import AgentReport, HeadState
from spreeze.cluster.relay import Block, Outbox
from spreeze.cluster.versions import own_versions

LAYOUT = RowLayout(2, 1)
STATE = HeadState(updates=0, steps_elsewhere=0, steps_ahead=0, envs_at_work=1, samplers=1)
VERSIONS = own_versions()


class FakeActor:
    """An agent whose answers are there at once. A call is a number, as Ray's are references."""

    def __init__(self) -> None:
        self.written = 0
        self.outbox = Outbox(LAYOUT.width, lambda: self.written, longest_s=0.0)
        self.answers: dict[int, Callable[[], Any]] = {}
        self._numbers = itertools.count(1)
        self.warnings: tuple[tuple[str, str], ...] = ()
        self.versions: dict[str, Any] = VERSIONS
        self.failure: tuple[str, str] | None = None
        self.rows_before = 0

    def __getattr__(self, name: str) -> Any:
        return _Method(lambda *words: self._ask(getattr(self, f"_{name}"), words))

    def _ask(self, method: Callable[..., Any], words: tuple[Any, ...]) -> int:
        number = next(self._numbers)
        self.answers[number] = lambda: method(*words)
        return number

    def take(self, number: int) -> Any:
        return self.answers.pop(number)()

    def _hello(self, _packages: tuple[str, ...]) -> dict[str, Any]:
        return self.versions

    def _begin(self, _order: bytes) -> None: ...

    def _pulse(self, _state: tuple[Any, ...]) -> AgentReport:
        steps = self.written
        plain = AgentReport(steps, 2, -3.0, 0.1, 0.2, 7.0, 1, 4, steps > 0, steps, 0.0, self.warnings, self.failure)
        return plain._replace(rows_before=self.rows_before)

    def _next_block(self, number: int, acknowledged: int) -> Block | None:
        return self.outbox.take(number, acknowledged, timeout_s=0.0)

    def _finish(self) -> None:
        self.outbox.close()

    def sample(self, rows: Rows) -> None:
        self.written += len(rows)
        assert self.outbox.add(rows) == len(rows)


class _Method:
    def __init__(self, remote: Callable[..., int]) -> None:
        self.remote = remote


def rows(first: int, count: int) -> Rows:
    """Rows whose columns all hold the row's number."""
    return np.repeat(np.arange(first, first + count, dtype=np.float32)[:, None], LAYOUT.width, axis=1)
