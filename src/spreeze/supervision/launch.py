"""How the supervisor starts the processes of a run, on the cores they may use, and gives them their briefs.

Each is a new program (`python -m spreeze.supervision.worker_main ROLE`), never a fork, so that no `__main__` guard is
needed and CUDA works.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from spreeze.channels import Channels
from spreeze.channels.brief import Brief, EnvironmentBrief, Role, name_of
from spreeze.channels.control import MessageReader
from spreeze.channels.spaces import Spaces
from spreeze.config import Config, PolicyKind
from spreeze.config.env_spec import EnvSpec
from spreeze.config.own_settings import find_algorithm, is_built_in
from spreeze.config.run_settings import RunSettings
from spreeze.errors import EnvironmentSetupError, one_line
from spreeze.host.logs import open_log
from spreeze.host.process_group import GroupLeader
from spreeze.host.programs import python, python_path
from spreeze.host.threads import thread_variables
from spreeze.supervision.placement import Placement

START_S = 120.0  # to import libraries, before a process can give a sign of life: a cold disk may be slow

OptionalRole = Literal["evaluator", "viewer", "dashboard", "gateway"]
"""What a run can do without."""

LEARNER_SLOT, ACTOR_SLOT, ENVIRONMENT_SLOT, EVALUATOR_SLOT, VIEWER_SLOT, DASHBOARD_SLOT = range(6)
GATEWAY_SLOT, FIRST_SAMPLER_SLOT = 6, 7
OPTIONAL_SLOTS: Mapping[OptionalRole, int] = {
    "evaluator": EVALUATOR_SLOT,
    "viewer": VIEWER_SLOT,
    "dashboard": DASHBOARD_SLOT,
    "gateway": GATEWAY_SLOT,
}

Message = dict[str, Any]
"""What a process has sent: its kind, and fields that depend on it."""
NamedMessage = tuple[str, Message]
"""The name of a process, and what it has sent."""


class ReportedError(NamedTuple):
    """What a process has raised."""

    reason: str
    traceback: str
    error: str
    """The name of the exception."""


@dataclass
class Child:
    """A process of the run, as the supervisor sees it."""

    role: Role
    index: int
    slot: int
    process: GroupLeader
    messages: MessageReader
    log_path: Path
    _brief_fd: int
    is_ready: bool = False
    """Whether it has its brief: before that it has nothing to save, and may be killed."""
    has_begun: bool = False
    """Whether it learns, as far as it is a learner: before that it has nothing to save, though it has its brief."""
    raised: ReportedError | None = None
    """What it has raised, if it has reported that."""
    counted_from: float = field(default_factory=time.monotonic)
    """When it became ready, or before that was started: from here on the time counts that it takes."""

    @property
    def name(self) -> str:
        """What people call it."""
        return name_of(self.role, self.index)

    @property
    def is_learner(self) -> bool:
        """Whether it is the learner, or one side of it."""
        return self.role in ("learner", "split_learner")

    def receive(self) -> list[NamedMessage]:
        """Return what has arrived from it. That it is ready, has begun or has raised is kept here, not returned."""
        received: list[NamedMessage] = []
        for message in self.messages.read():
            if message["kind"] == "ready":
                self.is_ready, self.counted_from = True, time.monotonic()
            elif message["kind"] == "begun":
                self.has_begun = True
            elif message["kind"] == "error":
                self.raised = ReportedError(message["reason"], message["traceback"], message["error"])
            else:
                received.append((self.name, message))
        return received

    def silence_limit_s(self, hang_s: float) -> float:
        """Return after how long without a sign of life it hangs."""
        return hang_s if self.is_ready else max(hang_s, START_S)

    def how_it_ended(self) -> str:
        """Return how it ended, where it has reported no error."""
        code = self.process.returncode
        return f"it was killed by {_signal_name(-code)}" if code < 0 else f"it exited with code {code}"

    def describe_exit(self) -> str:
        """Return how it ended, and where its output is."""
        return f"{self.how_it_ended()}; its output is in {self.log_path}"

    def send_brief(self, brief: Brief | EnvironmentBrief) -> None:
        """Send its brief. The pipe stays open: its end of file means that the supervisor is gone."""
        import cloudpickle  # only here: it can send environments that were defined in a script or a notebook

        try:
            payload = cloudpickle.dumps(brief)
        except Exception as error:
            raise EnvironmentSetupError(
                f"{brief.env.name} cannot be sent to another process: {one_line(error)}; "
                "make what it holds inside the callable"
            ) from error
        # In a thread, because a pipe holds 64 KB and the child reads only after its imports.
        threading.Thread(target=self._send, args=(payload,), daemon=True).start()

    def _send(self, payload: bytes) -> None:
        view = memoryview(len(payload).to_bytes(8, "little") + payload)
        with contextlib.suppress(BrokenPipeError, OSError):  # a child that died is noticed by its exit
            while view:
                view = view[os.write(self._brief_fd, view) :]

    def kill(self) -> None:
        """End it now, with all that it started."""
        self.process.kill()

    def close(self) -> None:
        """Let go of the pipes."""
        self.messages.close()
        os.close(self._brief_fd)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # of those for real time, not all have names


def start(
    role: Role,
    index: int,
    slot: int,
    channels: Channels | None,
    log_path: Path,
    threads: int,
    program: str | None = None,
) -> Child:
    """Start a process. What it prints goes to its log, not to the user's terminal.

    program: the module of a role that `worker_main` does not know.
    """
    brief_read, brief_write = os.pipe()
    message_read, message_write = os.pipe()
    command = python(
        "-m", "spreeze.supervision.worker_main", role, str(brief_read), str(message_write), str(os.getpid())
    )
    command += [] if program is None else [program]
    environment = {**os.environ, "PYTHONPATH": python_path(), **thread_variables(threads)}
    try:
        with os.fdopen(open_log(log_path), "ab") as log:
            inherited = () if channels is None else channels.descriptors
            descriptors = (brief_read, message_write, *inherited)
            process = GroupLeader(command, environment, descriptors, log.fileno())
    except OSError:
        os.close(brief_write)
        os.close(message_read)
        raise
    finally:
        os.close(brief_read)
        os.close(message_write)
    return Child(role, index, slot, process, MessageReader(message_read), log_path, brief_write)


class Launcher:
    """Starts processes. Those started before `begin` get their briefs by `send_brief`, later ones at once."""

    def __init__(
        self, env: EnvSpec, channels: Channels, run_dir: Path, started_at: float, gateway: str | None = None
    ) -> None:
        """gateway: the program of the gateway to other machines."""
        self.channels, self.env, self._gateway = channels, env, gateway
        self._run_dir, self._started_at = run_dir, started_at
        self._config: Config | None = None
        self._spaces: Spaces | None = None
        self._algorithm = b""
        self._policy_kind: PolicyKind = "gaussian"
        self._placement = Placement()
        self._learners = 0

    def begin(self, config: Config, spaces: Spaces, policy_kind: PolicyKind | None = None) -> None:
        """Brief whoever is started from now on.

        policy_kind: of an algorithm that this machine need not have, because only samplers are started.
        """
        import cloudpickle

        self._config, self._spaces = config, spaces
        if policy_kind is None:
            algorithm = find_algorithm(config.algo)
            policy_kind = algorithm.for_actions(spaces.action_kind).policy_kind
            if not is_built_in(config.algo):
                self._algorithm = cloudpickle.dumps(algorithm)  # perhaps defined in a script
        self._policy_kind = policy_kind

    def start_environment(self) -> Child:
        """Start the process that describes the environment."""
        child = self._start("environment", 0, ENVIRONMENT_SLOT, 1)
        child.send_brief(EnvironmentBrief(self.env))
        return child

    def start_learners(self, threads: int, is_split: bool) -> list[Child]:
        """Start the learner: one process, or one for each side."""
        self._learners = 2 if is_split else 1
        if not is_split:
            return [self._start("learner", 0, LEARNER_SLOT, threads)]
        return [self._start("split_learner", side, (LEARNER_SLOT, ACTOR_SLOT)[side], threads) for side in (0, 1)]

    def start_sampler(self, index: int, envs: int, generation: int) -> Child:
        """Start a sampler with this many environments; generation: how many had the same index before."""
        child = self._start("sampler", index, FIRST_SAMPLER_SLOT + index, 1)
        if self._config is not None:
            self.send_brief(child, envs, generation)
        return child

    def start_optional(self, role: OptionalRole) -> Child:
        """Start a process that the run can do without."""
        child = self._start(role, 0, OPTIONAL_SLOTS[role], 1)
        if self._config is not None:
            self.send_brief(child, generation=1)  # it was not there when the run began
        return child

    def send_brief(
        self,
        child: Child,
        envs: int | None = None,
        generation: int = 0,
        kept: Sequence[int] = (),
        without_replay_until: int = 0,
    ) -> None:
        """Send a process its brief.

        kept: numbers of the checkpoints that a learner resumes from, newest first. without_replay_until: the last of
        those from which it restores no rows.
        """
        assert self._config is not None, "not begun"
        assert self._spaces is not None
        self.place(child)
        self.channels.control.beat(child.slot)  # it could not before: making an environment may have taken long
        child.send_brief(
            Brief(
                index=child.index,
                slot=child.slot,
                config=self._config if envs is None else self._config.replace(envs_per_sampler=envs),
                env=self.env.stepped_as(self._config),
                spaces=self._spaces,
                run_dir=self._run_dir.absolute(),
                started_at=self._started_at,
                channels=self.channels,
                algorithm=self._algorithm if child.is_learner else b"",
                policy_kind=self._policy_kind,
                generation=generation,
                checkpoints=tuple(kept),
                without_replay_until=without_replay_until,
            )
        )

    def use(self, settings: RunSettings) -> None:
        """Place processes by these settings from now on."""
        self._placement.use(settings, self._learners, self.env.is_realtime)

    def place(self, child: Child) -> None:
        """Put a process on the cores it may use: those of its role, or all."""
        self._placement.place(child.process.pid, child.is_learner, child.role == "sampler")

    def _start(self, role: Role, index: int, slot: int, threads: int) -> Child:
        self.channels.control.enlist(slot)
        log_path = self._run_dir / "logs" / f"{name_of(role, index).replace(' ', '-')}.log"
        return start(
            role, index, slot, self.channels, log_path, threads, self._gateway if role == "gateway" else None
        )
