"""Two sides in lock step: together they make exactly the updates that one device would make.

A round: the critics' side takes rows out of the rings, updates, and sends critics and how many rows it has taken of
each ring; the actor's side takes the same rows in the same order, updates with those critics, and sends its actor.
Both draw the same random numbers. They take turns: nothing is gained in speed, and nothing lost in exactness.
"""

from __future__ import annotations

import time

from spreeze.learning.learner import IDLE_WAIT_S, Learner


class LockStepCritic(Learner):
    """The side that decides when there is an update."""

    def turn(self) -> None:
        """Make one round, or wait if there is nothing to do."""
        self._control.beat(self._slot)
        self._save()
        taken = self._take_in()
        allowed = self._updates_allowed()
        if not allowed and not taken:
            time.sleep(IDLE_WAIT_S)  # for rows, from processes that may need this core
            return
        if allowed:
            self._update_once()
        assert self._exchange is not None
        self._exchange.send(self._launched, self._intake.positions())
        message = self._exchange.wait(self._beat_and_ask)
        if message is not None:
            self._exchange.take_over(message)
        self._reporter.turn(time.monotonic())


class LockStepActor(Learner):
    """The side that follows."""

    def turn(self) -> None:
        """Follow one round of the critics' side."""
        assert self._exchange is not None
        self._save()
        message = self._exchange.wait(self._beat_and_ask)
        if message is None:
            return
        self._take_in(message.numbers)
        self._exchange.take_over(message)
        if message.updates > self._launched:
            self._update_once()
        self._exchange.send(self._launched)
        now = time.monotonic()
        if self._launched > self._began_at:
            if self._publisher is not None:
                self._publisher.turn(now, self._launched)
            self._reporter.turn(now)
