"""The learner: one process, one device."""

from __future__ import annotations

from spreeze.channels.brief import ChildSpec
from spreeze.channels.control import MessageWriter
from spreeze.learning.learner import Learner


def run(spec: ChildSpec, messages: MessageWriter) -> None:
    """Learn until told to stop."""
    learner = Learner(spec, messages)
    while not spec.channels.control.stopping():
        learner.turn()
    learner.finish()
