"""The process that looks at the environment before a run: user code, which must not run in the supervisor."""

from __future__ import annotations

from spreeze.channels.brief import EnvironmentBrief
from spreeze.channels.control import MessageWriter
from spreeze.environments.look import look_at


def run(brief: EnvironmentBrief, messages: MessageWriter) -> None:
    """Send the facts."""
    messages.send("environment", **look_at(brief.env).as_json())
