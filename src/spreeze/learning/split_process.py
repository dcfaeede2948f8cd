"""One side of a learner on two devices: the critics' (index 0) or the actor's (index 1)."""

from __future__ import annotations

from spreeze.channels.brief import ChildSpec
from spreeze.channels.control import MessageWriter
from spreeze.config import Part
from spreeze.learning.learner import Learner
from spreeze.learning.lock_step import LockStepActor, LockStepCritic

PARTS: tuple[Part, Part] = ("critic", "actor")


def run(spec: ChildSpec, messages: MessageWriter) -> None:
    """Learn until told to stop."""
    learner: Learner
    if spec.config.learning.exchange == "free":
        learner = Learner(spec, messages, PARTS[spec.index])
    else:
        learner = (LockStepCritic, LockStepActor)[spec.index](spec, messages, PARTS[spec.index])
    while not spec.channels.control.stopping():
        learner.turn()
    learner.finish()
