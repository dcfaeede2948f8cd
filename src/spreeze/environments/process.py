"""The process that describes the environment before a run: user code, which must not run in the supervisor."""

from __future__ import annotations

import threading
from dataclasses import replace

from spreeze.channels.brief import EnvironmentBrief
from spreeze.channels.control import MessageWriter
from spreeze.channels.environment_facts import EnvironmentFacts
from spreeze.environments.facts import find_facts, open_with_facts
from spreeze.environments.step_cost import measure_cost

MEASURE_LIMIT_S = 10.0  # all processes wait for this; a sampler is the place for a reset that hangs


def run(brief: EnvironmentBrief, messages: MessageWriter) -> None:
    """Send the facts, without what steps cost if it cannot be measured soon enough."""
    once = threading.Lock()  # taken by the first who sends

    def send(facts: EnvironmentFacts) -> None:
        if once.acquire(blocking=False):
            messages.send("environment", **facts.as_json())

    if brief.env.is_realtime:
        # A robot is not to move for a measurement, and can be opened once: by a sampler, as soon as there are facts.
        send(find_facts(brief.env))
        return
    with open_with_facts(brief.env) as (facts, env):
        if env is None:
            send(facts)
            return
        limit = threading.Timer(MEASURE_LIMIT_S, send, [facts])
        limit.daemon = True
        limit.start()
        send(replace(facts, cost=measure_cost(env, brief.env)))
