"""A run in one process: evaluator, samplers and learner take turns in a fixed order, from one seed.

In: a config, the environment, and channels in private memory. Out: the same rows, updates and evaluations every
time. They are the loops that otherwise run in processes of their own; only their order is decided here. A round:

    1. the evaluator scores the newest version, if enough environment steps were made since the last time
    2. each sampler steps its environments once, with the newest version
    3. the learner makes all updates that the ratio allows, and publishes a version

Between two rounds nothing is under way. What the rounds depend on besides the learner's state goes into checkpoints,
so that a resumed run continues as if it had never stopped.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from spreeze.channels import Channels
from spreeze.channels.brief import Brief, Role, name_of
from spreeze.channels.control import MessageList
from spreeze.channels.environment_facts import EnvironmentFacts
from spreeze.channels.spaces import Spaces
from spreeze.channels.transitions import TransitionChannel
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.config.own_settings import find_algorithm
from spreeze.config.run_settings import RunSettings
from spreeze.errors import CheckpointError, one_line
from spreeze.runs import serial_state
from spreeze.runs.checkpoint_format import Manifest
from spreeze.runs.serial_state import SerialState
from spreeze.supervision.allocation import allocate_channels
from spreeze.supervision.checkpoint_orders import ResumePoint
from spreeze.supervision.launch import ACTOR_SLOT, EVALUATOR_SLOT, FIRST_SAMPLER_SLOT, LEARNER_SLOT, NamedMessage
from spreeze.supervision.workers import GENERATIONS_PER_SESSION

if TYPE_CHECKING:
    from spreeze.environments.repeatable import RepeatableBatch
    from spreeze.evaluation.evaluator import Evaluator
    from spreeze.sampling.loop import Sampler


class Learning(Protocol):
    """The learner, whole or as two sides."""

    def learn(self, is_over: Callable[[], bool]) -> None:
        """Make the updates that are allowed, or those until the run is over; at least one, for a version."""
        ...

    def publish(self) -> None:
        """Publish the policy, and report figures when it is time."""
        ...

    def save(self, number: int, oldest_row: int) -> None:
        """Write a checkpoint."""
        ...

    def finish(self, beat: Callable[[], None]) -> None:
        """Publish the last version and write the last checkpoint. beat: called meanwhile."""
        ...

    def close(self) -> None:
        """Let PyTorch compute as it did before."""
        ...


class RaisedInRound(Exception):
    """Carries what was raised in a round past handlers for errors of the run itself."""

    def __init__(self, error: Exception, role: str) -> None:
        super().__init__(one_line(error))
        self.error, self.role = error, role


class SerialWorkers:
    """What `Workers` is for a run of several processes."""

    may_lose_learner = False
    """What the learner raises ends the run."""

    def __init__(self, env: EnvSpec, channels: Channels, run_dir: Path, started_at: float) -> None:
        self.channels, self.started_at = channels, started_at
        self._env, self._run_dir = env, run_dir.absolute()
        self._messages: dict[str, MessageList] = {}
        self._samplers: list[Sampler] = []
        self._envs: list[RepeatableBatch] = []
        self._learner: Learning | None = None
        self._learner_counters: list[NDArray[Any]] = []
        self._evaluator: Evaluator | None = None
        self._evaluation_due_at = self._evaluated = 0  # environment steps; version
        self._config: Config | None = None
        self._wanted: RunSettings | None = None
        self._generation = self._saved = self._taken_in = 0
        self._turn_of: Role | None = None
        """Whose turn it is; none between two rounds."""
        self._version_in_round: int | None = None
        """The version of a round in whose updates a limit has perhaps ended the session before this one."""
        self._is_complete = False

    # --- who is there ------------------------------------------------------------------------------------------

    @property
    def samplers_at_work(self) -> int:
        """How many there are."""
        return len(self._samplers)

    @property
    def has_learner(self) -> bool:
        """Whether there is one whose state is whole, with all that its checkpoint depends on."""
        return self._is_complete and self._turn_of not in ("learner", "split_learner")

    @property
    def wanted(self) -> RunSettings | None:
        """The settings that are in force."""
        return self._wanted

    def pids_by_role(self) -> dict[str, list[int]]:
        """There is no process besides the supervisor's."""
        return {}

    def channels_in_use(self) -> list[TransitionChannel]:
        """Return the channels that have a writer."""
        return list(self.channels.transitions)

    def learner_counters(self) -> list[NDArray[Any]]:
        """Return the counters of each side of the learner."""
        return self._learner_counters

    # --- start -------------------------------------------------------------------------------------------------

    def start_environment(self) -> None:
        """Nothing: this process finds it out, in `facts`."""

    def start(self, _samplers: int, _envs_per_sampler: int, _learner_threads: int, _is_split: bool) -> None:
        """Nothing starts before `brief`."""

    def facts(self, _hang_s: float) -> EnvironmentFacts:
        """Describe the environment, in this process."""
        facts: EnvironmentFacts = _load("spreeze.environments.facts").find_facts(self._env, is_serial=True)
        return facts

    def brief(
        self,
        config: Config,
        spaces: Spaces,
        settings: RunSettings,
        resume_point: ResumePoint | None = None,
        session: int = 1,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """Make environments and learner, and continue where the newest checkpoint was written."""
        checkpoints = () if resume_point is None else resume_point.checkpoints
        state = serial_state.read(self._run_dir / "checkpoint", checkpoints[0]) if checkpoints else None
        self._generation = (session - 1) * GENERATIONS_PER_SESSION if state is None else state.generation
        # Nobody takes rows out of a ring while a sampler writes.
        most_rows = settings.envs_per_sampler * (int(config.learning.n_step) + 1)
        config = config.replace(ring_rows=max(int(config.sampling.ring_rows), most_rows))
        allocate_channels(self.channels, config, spaces)
        self._config, self._wanted = config, settings
        self.channels.control.order(
            settings.batch_size,
            settings.learner_threads,
            rings=settings.samplers,
            envs_at_work=settings.samplers * settings.envs_per_sampler,
        )
        brief = Brief(
            index=0,
            slot=LEARNER_SLOT,
            config=config.replace(envs_per_sampler=settings.envs_per_sampler),
            env=self._env.stepped_as(config),
            spaces=spaces,
            run_dir=self._run_dir,
            started_at=self.started_at,
            channels=self.channels,
            policy_kind=find_algorithm(config.algo).for_actions(spaces.action_kind).policy_kind,
            generation=self._generation,
            checkpoints=tuple(manifest.number for manifest in checkpoints),
            without_replay_until=checkpoints[0].number if resume_point and resume_point.without_replay else 0,
        )
        self._learner = self._open_learner(brief)
        if session == 1:
            _load("spreeze.evaluation.process").warn_in_serial_run(brief.env, self._messages_of("evaluator"), beat)
        for index in range(settings.samplers):
            self._open_sampler(replace(brief, index=index, slot=FIRST_SAMPLER_SLOT + index), beat)
        self._evaluator = _load("spreeze.evaluation.evaluator").Evaluator(
            replace(brief, slot=EVALUATOR_SLOT), self._messages_of("evaluator"), beat
        )
        if state is not None:
            self._restore(state)
        else:
            self._taken_in = self._env_steps()
        self._is_complete = True

    def _open_learner(self, brief: Brief) -> Learning:
        metrics, serial = self.channels.metrics, _load("spreeze.learning.serial")
        if not brief.config.learning.is_split:
            self._learner_counters = [metrics.learner[0]]
            learner: Learning = serial.WholeLearner(brief, self._messages_of("learner"))
            return learner
        self._learner_counters = [metrics.learner[0], metrics.actor[0]]
        briefs = [replace(brief, index=side, slot=(LEARNER_SLOT, ACTOR_SLOT)[side]) for side in (0, 1)]
        messages = [self._messages_of("split_learner", side) for side in (0, 1)]
        both: Learning = serial.SplitLearner(briefs, messages)
        return both

    def _open_sampler(self, brief: Brief, beat: Callable[[], None]) -> None:
        process = _load("spreeze.sampling.process")
        count = int(brief.config.sampling.envs_per_sampler)
        made_by = _load("spreeze.environments.repeatable").RepeatableBatch
        envs = made_by(brief.env, count, process.seed_stream(brief), beat)
        self._envs.append(envs)
        self._samplers.append(process.open_sampler(brief, envs, wait_s=0.0))

    def _messages_of(self, role: Role, index: int = 0) -> MessageList:
        return self._messages.setdefault(name_of(role, index), MessageList())

    def add_optional(self, _role: str) -> None:
        """Nothing is shown by processes of this run: there are none."""

    # --- rounds ------------------------------------------------------------------------------------------------

    def work(self, seconds: float, is_over: Callable[[], bool]) -> None:
        """Make rounds for about so long, or until the run is over; stop where the supervisor has something to do."""
        number, oldest_row = self.channels.control.checkpoint
        if number > self._saved:
            self._save(number, oldest_row)
        deadline = time.monotonic() + seconds
        try:
            self._end_round(is_over)
            while not is_over() and time.monotonic() < deadline and not any(self._messages.values()):
                self._make_round(is_over)
        except Exception as error:
            assert self._turn_of is not None
            raise RaisedInRound(error, name_of(self._turn_of, 0)) from error

    def _make_round(self, is_over: Callable[[], bool]) -> None:
        if self._evaluate(is_over):
            return  # the run may be over by that
        assert self._learner is not None
        with self._turn("sampler"):
            for sampler in self._samplers:
                sampler.turn()
        self._learn(is_over)

    def _learn(self, is_over: Callable[[], bool]) -> None:
        assert self._learner is not None
        with self._turn("learner"):
            self._learner.learn(is_over)
            self._learner.publish()
        if not is_over():
            self._taken_in = self._env_steps()

    def _end_round(self, is_over: Callable[[], bool]) -> None:
        """Make the updates that were left over of a round, and publish them as its version."""
        if self._version_in_round is not None:
            self.channels.weights.go_back_to(self._version_in_round - 1)
            self._version_in_round = None
            self._learn(is_over)

    @contextlib.contextmanager
    def _turn(self, role: Role) -> Iterator[None]:
        self._turn_of = role
        yield
        self._turn_of = None  # not where something was raised: what was going on there is not whole

    def _evaluate(self, is_over: Callable[[], bool]) -> bool:
        """Evaluate if that is due; return whether it was."""
        if self._env_steps() < self._evaluation_due_at:
            return False
        weights = self.channels.weights
        if int(weights.open_version()[0]) == self._evaluated or (newest := weights.reader().newest()) is None:
            return False
        assert self._evaluator is not None
        with self._turn("evaluator"):
            evaluation = self._evaluator.evaluate(newest, is_over)
        if evaluation is not None:  # else the run is over, and makes this evaluation where it is resumed
            # As many steps in training as in evaluations, which take a small part of the time: they do not learn.
            self._evaluated, self._evaluation_due_at = newest.version, self._env_steps() + sum(evaluation.lengths)
        return True

    def env_steps_taken_in(self) -> int:
        """Return the environment steps of the rounds that have ended: a limit of them leaves no update out."""
        return self._taken_in

    def _env_steps(self) -> int:
        metrics = self.channels.metrics
        return int(metrics.samplers["env_steps"].sum()) + int(metrics.learner["steps_offset"][0])

    # --- messages ----------------------------------------------------------------------------------------------

    def read_messages(self) -> Iterator[NamedMessage]:
        """Yield what was sent since the last time."""
        for name, messages in self._messages.items():
            for message in messages.take():
                yield name, message

    def require_alive(self) -> None:
        """What is raised is raised in `work`."""

    def turn(self) -> None:
        """Nothing comes or goes."""

    def restart_learners(self, _checkpoints: Sequence[Manifest]) -> None:
        """Never asked for: see `may_lose_learner`."""
        raise NotImplementedError

    # --- checkpoints -------------------------------------------------------------------------------------------

    def _save(self, number: int, oldest_row: int) -> None:
        assert self._learner is not None
        self._saved = number
        self._learner.save(number, oldest_row)
        self._save_own(number)

    def _save_own(self, number: int) -> None:
        """Write what the next rounds depend on besides the learner's state."""
        assert self._evaluator is not None
        parts: list[dict[str, NDArray[Any]]] = []
        if self._turn_of != "sampler":
            parts = [envs.state() | own.state() for envs, own in zip(self._envs, self._samplers, strict=True)]
        consumed = int(self.channels.metrics.learner["rows_consumed"][0])
        state = SerialState(
            generation=self._generation,
            version=int(self.channels.weights.open_version()[0]),
            evaluations=self._evaluator.evaluations,
            evaluated=self._evaluated,
            evaluation_due_at=self._evaluation_due_at,
            held_back=self._env_steps() - consumed,
            samplers=tuple(parts),
        )
        report = serial_state.write(self._run_dir / "checkpoint", number, state)
        self._messages_of("sampler").send("checkpoint", **report)

    def _restore(self, state: SerialState) -> None:
        assert self._evaluator is not None
        self._evaluator.evaluations = state.evaluations
        self._evaluated, self._evaluation_due_at = state.evaluated, state.evaluation_due_at
        self.channels.weights.go_back_to(state.version)
        self._version_in_round = state.version
        if len(state.samplers) != len(self._samplers):
            return  # it ended in the middle of a step: new episodes begin
        counters = self.channels.metrics.samplers
        counters["env_steps"][0], counters["first_step_at"][0] = state.held_back, time.monotonic()
        for index, (envs, sampler) in enumerate(zip(self._envs, self._samplers, strict=True)):
            try:
                sampler.restore(state.samplers[index])
                has_repeated = envs.restore(state.samplers[index])
            except (KeyError, IndexError, ValueError, TypeError, OverflowError) as error:
                raise CheckpointError(f"the checkpoint's sampler cannot be restored: {one_line(error)}") from error
            if not has_repeated:
                self._messages_of("sampler", index).record_event(
                    "warning",
                    f"{self._env.name} does not repeat its steps with the same seed and actions: the run continues, "
                    "but not as it would have without the interruption",
                )

    # --- end ---------------------------------------------------------------------------------------------------

    is_evaluating = False
    """An evaluation more at the end, bounded by time, would not repeat itself."""

    def ask_to_end(
        self, read_messages: Callable[[], None], _saving_s: float = 0.0, _evaluating_s: float = 0.0
    ) -> None:
        """Write the last checkpoint, if one is ordered."""
        if not self.has_learner:
            return
        assert self._learner is not None
        number, _ = self.channels.control.last_checkpoint
        self._learner.finish(read_messages)
        if number > self._saved:
            self._saved = number
            self._save_own(number)

    def kill(self) -> None:
        """There is nobody to kill."""
        self.channels.control.stop()

    def close(self) -> None:
        """Close the environments and let go of the channels."""
        closes = [envs.close for envs in self._envs] + ([] if self._evaluator is None else [self._evaluator.close])
        for close in closes:
            with contextlib.suppress(Exception):  # a close that fails has no consequence
                close()
        if self._learner is not None:
            self._learner.close()
        self.channels.close()


def _load(module: str) -> Any:
    """Import by name: the supervisor of other runs must not import torch."""
    return importlib.import_module(module)
