"""When the process that looks after a supervisor takes it for hung: by the beats that it misses."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from spreeze.host import orphans

PID, HANG_S = 4242, 3.0
Await = Callable[..., tuple[bytes, list[tuple[int, int]]]]


@pytest.fixture
def await_word(monkeypatch: pytest.MonkeyPatch) -> Iterator[Await]:
    """Return what waits for a word, from what each look finds (nothing, or a word), and says who was killed."""
    read, write = os.pipe()

    def wait(*found: bytes | None) -> tuple[bytes, list[tuple[int, int]]]:
        looks, killed = iter(found), list[tuple[int, int]]()

        def look(milliseconds: float) -> list[int]:
            assert milliseconds == 1000 * HANG_S / orphans.LOOKS
            if (word := next(looks)) is not None:
                os.write(write, word)
            return [read] if word is not None else []

        monkeypatch.setattr("select.poll", lambda: SimpleNamespace(register=lambda *_: None, poll=look))
        monkeypatch.setattr("os.kill", lambda pid, number: killed.append((pid, number)))
        return orphans._await_word(read, PID, HANG_S), killed

    yield wait
    os.close(read)
    os.close(write)


def test_one_that_misses_some_beats_is_busy(await_word: Await) -> None:
    missed = [None] * (orphans.LOOKS - 1)
    beats = (*missed, orphans.BEAT, *missed, orphans.BEAT * 3, orphans.DISMISSED)
    assert await_word(*beats) == (orphans.DISMISSED, [])


def test_one_that_misses_all_beats_of_its_time_is_killed_once(await_word: Await) -> None:
    missed = [None] * (2 * orphans.LOOKS)
    assert await_word(orphans.BEAT, *missed, orphans.DISMISSED) == (orphans.DISMISSED, [(PID, signal.SIGKILL)])
