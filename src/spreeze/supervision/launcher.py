"""Starts the processes of one run, on the cores they may use, and gives them their briefs."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from spreeze.channels import Channels
from spreeze.channels.brief import Brief, EnvironmentBrief, Role, name_of
from spreeze.channels.spaces import Spaces
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.config.own_settings import find_algorithm, is_built_in
from spreeze.config.run_settings import RunSettings
from spreeze.supervision import launch
from spreeze.supervision.launch import Child

OptionalRole = Literal["evaluator", "viewer", "dashboard"]
"""What a run can do without."""

LEARNER_SLOT, ACTOR_SLOT, ENVIRONMENT_SLOT, EVALUATOR_SLOT, VIEWER_SLOT, DASHBOARD_SLOT, FIRST_SAMPLER_SLOT = range(7)
OPTIONAL_SLOTS: Mapping[OptionalRole, int] = {
    "evaluator": EVALUATOR_SLOT,
    "viewer": VIEWER_SLOT,
    "dashboard": DASHBOARD_SLOT,
}


class Launcher:
    """Starts processes. Those started before `begin` get their briefs by `send_brief`, later ones at once."""

    def __init__(self, env: EnvSpec, channels: Channels, run_dir: Path, started_at: float) -> None:
        self.channels, self.env = channels, env
        self._run_dir, self._started_at = run_dir, started_at
        self._config: Config | None = None
        self._spaces: Spaces | None = None
        self._algorithm = b""
        self._settings: RunSettings | None = None
        self._learners = 0
        self._allowed_cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []

    def begin(self, config: Config, spaces: Spaces) -> None:
        """Brief whoever is started from now on."""
        import cloudpickle

        self._config, self._spaces = config, spaces
        if not is_built_in(config.algo):
            self._algorithm = cloudpickle.dumps(find_algorithm(config.algo))  # perhaps defined in a script

    def start_look(self) -> Child:
        """Start the process that looks at the environment."""
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
        self, child: Child, envs: int | None = None, generation: int = 0, kept: Sequence[int] = ()
    ) -> None:
        """Send a process its brief. kept: numbers of the checkpoints that a learner resumes from, newest first."""
        assert self._config is not None, "not begun"
        assert self._spaces is not None
        self.place(child)
        self.channels.control.beat(child.slot)  # it could not before: making an environment may have taken long
        child.send_brief(
            Brief(
                index=child.index,
                slot=child.slot,
                config=self._config if envs is None else self._config.replace(envs_per_sampler=envs),
                env=self.env.with_backend(self._config.environment.backend),
                spaces=self._spaces,
                run_dir=self._run_dir.absolute(),
                started_at=self._started_at,
                channels=self.channels,
                algorithm=self._algorithm if child.is_learner else b"",
                generation=generation,
                checkpoints=tuple(kept),
            )
        )

    def use(self, settings: RunSettings) -> None:
        """Place processes by these settings from now on."""
        self._settings = settings

    def place(self, child: Child) -> None:
        """Put a process on the cores it may use: those of its role, or all."""
        if sys.platform != "linux" or self._settings is None:
            return
        cores, apart = self._allowed_cores, self._settings.learner_threads * self._learners
        # A learner that is still finding out how many threads it needs may have all cores.
        if self._settings.pinned and 0 < apart < len(cores):
            cores = cores[:apart] if child.is_learner else cores[apart:]
        with contextlib.suppress(OSError):  # it ended meanwhile
            for task in os.listdir(f"/proc/{child.process.pid}/task"):  # noqa: PTH208 (names are what is wanted)
                os.sched_setaffinity(int(task), cores)

    def _start(self, role: Role, index: int, slot: int, threads: int) -> Child:
        self.channels.control.enlist(slot)
        log_path = self._run_dir / "logs" / f"{name_of(role, index).replace(' ', '-')}.log"
        return launch.start(role, index, slot, self.channels, log_path, threads)
