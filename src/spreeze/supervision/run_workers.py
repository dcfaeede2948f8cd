"""What the supervisor needs of those who do the work of a run, in processes of their own or in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from spreeze.channels import Channels
from spreeze.channels.environment_facts import EnvironmentFacts
from spreeze.channels.spaces import Spaces
from spreeze.channels.transitions import TransitionChannel
from spreeze.config import Config
from spreeze.config.run_settings import RunSettings
from spreeze.runs.checkpoint_format import Manifest
from spreeze.supervision.checkpoint_orders import ResumePoint
from spreeze.supervision.launch import NamedMessage, OptionalRole


class RunWorkers(Protocol):
    """Samplers, learner and evaluator of one run."""

    channels: Channels
    started_at: float

    @property
    def samplers_at_work(self) -> int:
        """Samplers that were not dismissed and have not failed."""
        ...

    @property
    def has_learner(self) -> bool:
        """Whether there is a learner that has begun and whose state is whole."""
        ...

    @property
    def may_lose_learner(self) -> bool:
        """Whether another learner can continue with what one that was killed leaves in the channels."""
        ...

    @property
    def wanted(self) -> RunSettings | None:
        """The settings that are in force, or soon will be."""
        ...

    def pids_by_role(self) -> dict[str, list[int]]:
        """Return the processes of each role."""
        ...

    def channels_in_use(self) -> list[TransitionChannel]:
        """Return the channels that have a writer."""
        ...

    def learner_counters(self) -> list[NDArray[Any]]:
        """Return the counters of each side of the learner."""
        ...

    def start_environment(self) -> None:
        """Start to find out what has to be known of the environment."""
        ...

    def start(self, samplers: int, envs_per_sampler: int, learner_threads: int, is_split: bool) -> None:
        """Start what can be started before the environment is known."""
        ...

    def facts(self, hang_s: float) -> EnvironmentFacts | None:
        """Return what is known of the environment, None as long as it is not known yet.

        Raises EnvironmentSetupError where it cannot be trained on.
        """
        ...

    def brief(
        self,
        config: Config,
        spaces: Spaces,
        settings: RunSettings,
        resume_point: ResumePoint | None = None,
        session: int = 1,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """Send all of them their briefs, now that everything is known.

        beat: called again and again where this takes long, as in the user's own process.
        """
        ...

    def add_optional(self, role: OptionalRole) -> None:
        """Start a process that the run can do without."""
        ...

    def work(self, seconds: float, is_over: Callable[[], bool]) -> None:
        """Let them work for about so long."""
        ...

    def turn(self) -> None:
        """Bring them nearer to what is wanted."""
        ...

    def read_messages(self) -> Iterator[NamedMessage]:
        """Yield what was sent since the last time."""
        ...

    def require_alive(self) -> None:
        """Raise what has happened to one that the run cannot do without."""
        ...

    def env_steps_taken_in(self) -> int:
        """Return the environment steps that count for the limit of a run."""
        ...

    def restart_learners(self, checkpoints: Sequence[Manifest]) -> None:
        """Restart the learner from a checkpoint."""
        ...

    @property
    def is_evaluating(self) -> bool:
        """Whether the newest version is scored while all others end."""
        ...

    def ask_to_end(self, read_messages: Callable[[], None], saving_s: float = 0.0, evaluating_s: float = 0.0) -> None:
        """Let all of them end in order, and wait a little."""
        ...

    def kill(self) -> None:
        """End what is left, now."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...
