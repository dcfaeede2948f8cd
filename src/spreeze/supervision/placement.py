"""Which cores the processes of a run may use, and which of them come first there.

In: settings of a run. Out: affinities and priorities of its processes, where the system has them (Linux).
"""

from __future__ import annotations

import contextlib
import os
import sys

from spreeze.config.run_settings import RunSettings
from spreeze.host.cores import allowed_cores, cores_of_others
from spreeze.host.priority import run_after

NICENESS = 5  # of all but the sampler of a real robot


class Placement:
    """Where processes run."""

    def __init__(self) -> None:
        self._cores = allowed_cores()
        self._settings: RunSettings | None = None
        self._learners, self._is_realtime = 0, False

    def use(self, settings: RunSettings, learners: int, is_realtime: bool) -> None:
        """Place processes by these settings from now on. is_realtime: whether steps have deadlines."""
        self._settings, self._learners, self._is_realtime = settings, learners, is_realtime

    def place(self, pid: int, is_learner: bool, is_sampler: bool) -> None:
        """Put a process on the cores it may use: those of its role, or all."""
        if sys.platform != "linux" or self._settings is None:
            return
        cores, apart = self._cores, self._settings.learner_threads * self._learners
        if self._is_realtime:
            # The sampler takes its own core itself: not for what its environment has started before.
            cores = cores if is_sampler else cores_of_others(cores)
        # A learner that is still finding out how many threads it needs may have all cores.
        elif self._settings.pinned and 0 < apart < len(cores):
            cores = cores[:apart] if is_learner else cores[apart:]
        with contextlib.suppress(OSError):  # it ended meanwhile
            for task in map(int, os.listdir(f"/proc/{pid}/task")):  # noqa: PTH208 (names are what is wanted)
                os.sched_setaffinity(task, cores)
                if self._is_realtime and not is_sampler:
                    run_after(task, NICENESS)
