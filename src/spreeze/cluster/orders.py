"""What crosses between the head of a run and the agents on other machines, besides blocks of rows.

All of it is sent after the versions on both sides were compared (`versions.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from spreeze.channels.spaces import Spaces
from spreeze.config import Config, PolicyKind
from spreeze.config.env_spec import EnvSpec

LEASE_S = 5.0  # an agent that hears nothing for so long is cut off, or its head has ended: it ends too
SILENCE_S = 4.0  # a head that hears nothing for so long from an agent goes on without it; shorter than the lease
HUNG_S = 3.0  # an agent of which no thread has run for so long is killed by its own machine: before the head gives up
PULSE_S = 0.05  # as often as the supervisor looks; a pulse costs the head 0.4 ms


@dataclass(frozen=True)
class AgentOrder:
    """What an agent begins with."""

    machine: str
    """The name that its machine has in this run."""
    config: Config
    """With a seed that no other agent has."""
    env: EnvSpec
    spaces: Spaces
    policy_kind: PolicyKind
    samplers: int
    """How many samplers it is to have, and may have at most."""
    ledger: str = ""
    """The name of the file in which agents of this machine leave to each other how many rows they have sampled."""
    rows_sampled: int = 0
    """How many the head knows of."""


class HeadState(NamedTuple):
    """What the samplers of all machines have to know of the run, with every pulse."""

    updates: int
    steps_elsewhere: int
    """Environment steps of all others, with those of earlier sessions: for the ratio of updates to steps."""
    steps_ahead: int
    envs_at_work: int
    """Environments of all machines together."""
    samplers: int
    """How many samplers the agent is to have."""


class AgentReport(NamedTuple):
    """What an agent answers to a pulse: sums over its samplers, since it began."""

    env_steps: int
    episodes: int
    return_sum: float
    ring_wait_s: float
    ratio_wait_s: float
    policy_published_at: float
    """When the oldest policy was published that one of its samplers acts with, on the clock of the head, which wrote
    it into the weights: no clocks are compared. 0 while none acts."""
    samplers: int
    envs: int
    has_stepped: bool
    rows_written: int
    """Rows that its samplers have written into their rings: all of them arrive, or are counted as lost."""
    blocked_s: float
    """For how long blocks were full and none could leave."""
    warnings: tuple[tuple[str, str], ...]
    """What has happened since the last report, each with a traceback or nothing."""
    failure: tuple[str, str] | None
    """Why it has no samplers any more, with a traceback or nothing."""
    rows_before: int = 0
    """Rows that samplers of its machine had written before it began, as far as the agent before it has left that."""
