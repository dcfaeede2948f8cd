"""One side of a learner on two devices: the critics' (index 0) or the actor's (index 1)."""

from __future__ import annotations

from spreeze.channels.brief import Brief
from spreeze.channels.control import MessageWriter
from spreeze.config import LearnerRole
from spreeze.learning.learner import Learner
from spreeze.learning.lock_step import LockStepActor, LockStepCritic

ROLES: tuple[LearnerRole, LearnerRole] = ("critic", "actor")


def run(brief: Brief, messages: MessageWriter) -> None:
    """Learn until told to stop."""
    learner: Learner
    if not brief.config.learning.is_lock_step:
        learner = Learner(brief, messages, ROLES[brief.index])
    else:
        learner = (LockStepCritic, LockStepActor)[brief.index](brief, messages, ROLES[brief.index])
    while not brief.channels.control.stopping():
        learner.turn()
    learner.finish()
