"""The process that describes the environment before a run: user code, which must not run in the supervisor."""

from __future__ import annotations

from spreeze.channels.brief import EnvironmentBrief
from spreeze.channels.control import MessageWriter
from spreeze.environments.facts import find_facts


def run(brief: EnvironmentBrief, messages: MessageWriter) -> None:
    """Send the facts."""
    messages.send("environment", **find_facts(brief.env).as_json())
