"""The learner: one process, one device."""

from __future__ import annotations

from spreeze.channels.brief import Brief
from spreeze.channels.control import MessageWriter
from spreeze.learning.learner import Learner


def run(brief: Brief, messages: MessageWriter) -> None:
    """Learn until told to stop."""
    learner = Learner(brief, messages)
    messages.send("begun")
    while not brief.channels.control.stopping():
        learner.turn()
    learner.finish()
