"""Two sides in lock step: together they make exactly the updates that one device would make.

A round: the critics' side takes rows out of the rings, updates, and sends critics and how many rows it has taken of
each ring; the actor's side takes the same rows in the same order, updates with those critics, and sends its actor.
Both draw the same random numbers. They take turns: this is not faster than one device, but exact.
"""

from __future__ import annotations

import time

from spreeze.learning.exchange import Exchange
from spreeze.learning.learner import IDLE_WAIT_S, Learner


class LockStepCritic:
    """The side that decides when there is an update."""

    def __init__(self, learner: Learner) -> None:
        self._learner, self._exchange = learner, _exchange_of(learner)

    def turn(self) -> None:
        """Make one round, or wait if there is nothing to do."""
        if self.begin():
            self.end()
            self._learner.publish_and_report()
        else:
            time.sleep(IDLE_WAIT_S)  # for rows, from processes that may need this core

    def begin(self) -> bool:
        """Make this side's half of a round; return whether there is one."""
        learner = self._learner
        learner.start_turn()
        taken = learner.take_in()
        allowed = learner.updates_allowed()
        if not allowed and not taken:
            return False
        if allowed:
            learner.update_once()
        self._exchange.send(learner.launched, learner.rows_taken())
        return True

    def end(self) -> None:
        """Take over what the actor's side has made of its half."""
        message = self._exchange.wait(self._learner.is_stopping)
        if message is not None:
            self._exchange.take_over(message)


class LockStepActor:
    """The side that follows."""

    def __init__(self, learner: Learner) -> None:
        self._learner, self._exchange = learner, _exchange_of(learner)

    def turn(self) -> None:
        """Follow one round of the critics' side."""
        self.follow()
        self._learner.publish_and_report()

    def follow(self) -> None:
        """Make this side's half of a round."""
        learner = self._learner
        learner.start_turn()
        message = self._exchange.wait(learner.is_stopping)
        if message is None:
            return
        learner.take_in(message.numbers)
        self._exchange.take_over(message)
        if message.updates > learner.launched:
            learner.update_once()
        self._exchange.send(learner.launched)


def _exchange_of(learner: Learner) -> Exchange:
    assert learner.exchange is not None, "the learner is not split"
    return learner.exchange
