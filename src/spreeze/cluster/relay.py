"""Carries rows from one machine's rings to another's in numbered blocks: each row once, or counted as lost.

In at the agent: rows of its samplers. Out at the head: the same rows, in order. Nothing here knows how a block
travels: the head asks for block after block by its number, several at a time, and says which ones it has; the agent
keeps each until then. A question that was lost is asked again, and a block that arrives again is recognised by its
number. When the head is slow, or the way to it: the agent keeps a few blocks and takes no more rows, so that rings
become full and samplers wait.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from spreeze.channels.transitions import Rows

# A block of 0.3 MB costs as much of the head's core for its way through Ray as for its bytes; above 4 MB nothing is
# gained, and rows wait longer.
FULL_BYTES, ENOUGH_BYTES = 4 << 20, 1 << 20
LONGEST_S = 0.05  # until rows leave that are fewer: a learner that waits for the warm-up has them soon
UNDER_WAY = 4  # with a round trip of 20 ms, four of 4 MB keep a line of 1 Gbit/s busy


class Block(NamedTuple):
    """Some rows on their way."""

    number: int
    """1, 2, 3, ... for each agent; 0 says that no more follow."""
    first_row: int
    """How many rows were in all blocks before it."""
    written: int
    """How many rows the agent's samplers had written when it was closed: none that was sampled is forgotten."""
    rows: Rows


class Outbox:
    """The agent's end. `add` and `close` are for one thread, `take` for several others."""

    def __init__(
        self,
        width: int,
        count_written: Callable[[], int],
        full_bytes: int = FULL_BYTES,
        enough_bytes: int = ENOUGH_BYTES,
        longest_s: float = LONGEST_S,
        most_kept: int = UNDER_WAY,
    ) -> None:
        """width: columns of a row. count_written: how many rows samplers have written until now."""
        self._width, self._count_written = width, count_written
        self._capacity = max(1, full_bytes // (4 * width))
        self._enough, self._longest_s, self._most_kept = max(1, enough_bytes // (4 * width)), longest_s, most_kept
        self._changed = threading.Condition()
        self._kept: deque[Block] = deque()
        """Closed and not acknowledged, in order."""
        self._closed = self._rows_closed = 0
        """How many blocks were ever closed, and their rows."""
        self._open, self._open_rows, self._opened_at = self._room(), 0, 0.0
        self._is_last = False

    @property
    def room(self) -> int:
        """How many rows it takes, at least."""
        return self._capacity - self._open_rows

    @property
    def is_empty(self) -> bool:
        """Whether all rows that were added have been acknowledged."""
        with self._changed:
            return not self._kept and not self._open_rows

    def add(self, rows: Rows) -> int:
        """Copy as many rows as there is room for; return how many."""
        with self._changed:
            taken = 0
            while taken < len(rows) and self._open_rows < self._capacity:
                count = min(len(rows) - taken, self._capacity - self._open_rows)
                self._open[self._open_rows : self._open_rows + count] = rows[taken : taken + count]
                if not self._open_rows:
                    self._opened_at = time.monotonic()
                self._open_rows += count
                taken += count
                if self._open_rows == self._capacity:
                    self._close_block()
            if self._open_rows >= self._enough or taken == len(rows) == self._open_rows:
                self._changed.notify_all()  # enough for a block, or the first rows of one, whose time begins
            return taken

    def close(self) -> None:
        """No rows follow: the last block is whatever is there."""
        with self._changed:
            self._is_last = True
            self._changed.notify_all()

    def take(self, number: int, acknowledged: int, timeout_s: float) -> Block | None:
        """Return the block with this number as soon as it is worth sending; None if it is not within the time.

        acknowledged: the head has all blocks up to this one. A block can be taken again until then.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while self._kept and self._kept[0].number <= acknowledged:
                self._kept.popleft()
                self._changed.notify_all()  # there is room for another
            while True:
                if self._kept and self._kept[0].number <= number <= self._closed:
                    return self._kept[number - self._kept[0].number]
                if number <= acknowledged:
                    return None  # nobody waits for it any more
                now = time.monotonic()
                wait_s = deadline - now
                if number == self._closed + 1:
                    due_s = self._due_s(now)
                    if due_s <= 0 and self._close_block():
                        continue
                    if self._is_last and not self._open_rows:
                        return Block(0, self._rows_closed, self._count_written(), self._open[:0])
                    wait_s = min(wait_s, due_s) if due_s > 0 else wait_s
                if now >= deadline:
                    return None
                self._changed.wait(wait_s)

    def _due_s(self, now: float) -> float:
        """Return after how long the open block is to be closed."""
        if not self._open_rows:
            return np.inf
        if self._is_last or self._open_rows >= self._enough:
            return 0.0
        return max(0.0, self._opened_at + self._longest_s - now)

    def _close_block(self) -> bool:
        """Close the open block if it may be kept; return whether it was."""
        if not self._open_rows or len(self._kept) >= self._most_kept:
            return False
        self._closed += 1
        rows = self._open[: self._open_rows]
        self._kept.append(Block(self._closed, self._rows_closed, self._count_written(), rows))
        self._rows_closed += len(rows)
        self._open, self._open_rows = self._room(), 0
        self._changed.notify_all()
        return True

    def _room(self) -> Rows:
        return np.empty((self._capacity, self._width), np.float32)


class Inbox:
    """The head's end."""

    def __init__(self) -> None:
        self.last = 0
        """The number of the last block that was accepted: what is acknowledged."""
        self.rows = 0
        """Rows in all blocks until then, with those that were lost."""
        self.lost = 0
        self.repeated = 0
        """Rows that arrived again, and were left out."""

    def accept(self, block: Block) -> Rows | None:
        """Return the rows of a block that follows those before; None for one that was accepted before."""
        if block.number <= self.last:
            self.repeated += len(block.rows)
            return None
        self.lost += block.first_row - self.rows  # of blocks in between, which the agent has no more
        self.last, self.rows = block.number, block.first_row + len(block.rows)
        return block.rows
