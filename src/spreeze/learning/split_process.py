"""One side of a learner on two devices: the critics' (index 0) or the actor's (index 1)."""

from __future__ import annotations

from spreeze.channels.brief import Brief
from spreeze.channels.control import MessageWriter
from spreeze.config import LearnerRole
from spreeze.learning.learner import Learner
from spreeze.learning.lock_step import LockStepActor, LockStepCritic

ROLES: tuple[LearnerRole, LearnerRole] = ("critic", "actor")


def run(brief: Brief, messages: MessageWriter) -> None:
    """Learn until stopped."""
    learner = Learner(brief, messages, ROLES[brief.index])
    messages.send("begun")
    in_turn: Learner | LockStepCritic | LockStepActor = learner
    if brief.config.learning.is_lock_step:
        in_turn = (LockStepCritic, LockStepActor)[brief.index](learner)
    while not brief.channels.control.stopping():
        in_turn.turn()
    learner.finish()
