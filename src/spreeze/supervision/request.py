"""What a run is started with, and what may change its settings while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from spreeze.adapt.plan import Plan
from spreeze.channels.environment_facts import EnvironmentFacts
from spreeze.channels.machines import MAX_MACHINES
from spreeze.channels.transport import DEFAULT_TRANSPORT, Transport
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.supervision.checkpoint_orders import ResumePoint
from spreeze.supervision.workers import Workers
from spreeze.views.display import Display


class Driver(Protocol):
    """What changes the settings of a run under way."""

    @property
    def is_over(self) -> bool:
        """Whether the run has served its purpose."""
        ...

    def turn(self, now: float) -> None:
        """Look at the run, and do what is due."""
        ...


MakeDriver = Callable[[Workers, Plan], Driver]


@dataclass(frozen=True)
class RunRequest:
    """What a run is started with."""

    asked: Config
    """The settings as the user gave them, "auto" where the run chooses."""
    config: Config
    """The settings to plan from: those that were asked for, or those of a run that is resumed."""
    env: EnvSpec
    started_at: float
    """On the clock of `time.monotonic`: the start of the command."""
    display: Display
    resume_point: ResumePoint | None = None
    facts: EnvironmentFacts | None = None
    """What is known of the environment, where it was examined before."""
    chooses_algorithm: bool = False
    """Whether the algorithm is a guess until the environment's actions are known: --algo auto."""
    make_driver: MakeDriver | None = None
    """What drives the run instead of the adaptation."""
    transport: Transport = DEFAULT_TRANSPORT
    """What makes the channels of transitions and weights."""
    gateway: str | None = None
    """The program of the gateway to other machines, for a run with --cluster."""

    @property
    def most_machines(self) -> int:
        """How many other machines the run may have."""
        return MAX_MACHINES if self.config.cluster.cluster is not None and self.gateway is not None else 0
