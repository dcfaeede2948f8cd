"""Serial trainings in one thread each: what one learns depends on its words and its seed, and not on the clock.

So as many run side by side as there are jobs, and other programs on the machine change nothing but the time. In: the
words of each run. Out: what each has learnt, in the kept runs.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from kept_runs import KeptRuns
from session import ENVIRONMENTS, QUIET, ROOT, SPREEZE, Json, read_journal, read_result
from spreeze.commands.bench.solve import stop_process
from spreeze.errors import SpreezeError

FLAGS = ("--serial", "--device=cpu", "--checkpoint-interval-s=0", *QUIET, "--fresh", "--no-tensorboard")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# What runs may import by name: environments, and algorithms that exist only for a benchmark.
PYTHON_PATH = (str(ENVIRONMENTS), str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", ""))
SHORTEST_S, END_S = 10.0, 5.0  # of a run, and of its end
POLL_S = 0.1
OUT_OF_TIME = "the part's time was up"


@dataclass(frozen=True)
class SerialRun:
    """A run that is to be made."""

    key: Json
    words: tuple[str, ...]
    """For `train`: the environment and flags, its limits among them."""
    work: float
    """How long it takes, in any unit that all runs of a study have."""
    program: tuple[str, ...] = SPREEZE


class Training:
    """A run on its way."""

    def __init__(self, run: SerialRun, max_s: float) -> None:
        self.run, self._ending = run, ExitStack()
        self._folder = Path(self._ending.enter_context(tempfile.TemporaryDirectory(prefix="spreeze-serial-")))
        limit = [] if max_s == math.inf else [f"--max-seconds={max_s:.0f}"]
        self._stderr = self._ending.enter_context((self._folder / "stderr.txt").open("wb"))
        self._process = subprocess.Popen(
            [*run.program, "train", *FLAGS, f"--run-dir={self._folder / 'run'}", *limit, *run.words],
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            cwd=ROOT,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(filter(None, PYTHON_PATH))},
        )
        self._ending.callback(stop_process, self._process)

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def result(self) -> Json:
        """Return what it has learnt, also where it has failed on the way or its time was up."""
        run = self._folder / "run"
        if self._process.returncode:
            said = (self._folder / "stderr.txt").read_text(errors="replace").strip().splitlines()
            return {"failed": said[-1] if said else f"exit code {self._process.returncode}", "evaluations": []}
        try:
            summary = read_result(run / "summary.json")
        except SpreezeError as error:
            return {"failed": str(error), "evaluations": []}
        lines, evaluations = read_journal(run / "metrics.jsonl"), read_journal(run / "evaluations.jsonl")
        q_means = [line["q_mean"] for line in lines if line.get("q_mean") is not None]
        names = ("wall_s", "env_steps", "updates", "mean_return")
        return {
            **{name: summary[name] for name in names[:3]},
            "q_mean_range": [min(q_means), max(q_means)] if q_means else None,
            "evaluations": [
                [line[name] for name in names] for line in evaluations if line["mean_return"] is not None
            ],
            "failed": OUT_OF_TIME if summary["stop_reason"] == "max_seconds" else None,
        }

    def end(self) -> None:
        self._ending.close()


def make_runs(kept: KeptRuns, runs: Sequence[SerialRun], jobs: int, line: Callable[[Json], str]) -> None:
    """Make the runs that are missing, or those for which there is time, in this order, with a line about each."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # and end the runs on the way
    _Crowd(kept, runs, jobs, line).fill()


class _Crowd:
    """Runs side by side."""

    def __init__(self, kept: KeptRuns, runs: Sequence[SerialRun], jobs: int, line: Callable[[Json], str]) -> None:
        self._kept, self._jobs, self._line = kept, jobs, line
        self._waiting = [run for run in runs if not kept.has(**run.key)]
        self._running: list[Training] = []
        self._slowest_hz: float | None = None
        """Work per second of the slowest run so far."""

    def fill(self) -> None:
        try:
            self._start()
            while self._running:
                time.sleep(POLL_S)
                for run in [run for run in self._running if run.has_ended()]:
                    self._take(run)
                self._start()
        finally:
            for run in self._running:
                run.end()
        if self._waiting:
            print(f"{len(self._waiting)} runs did not fit into this part; the same command makes them")

    def _start(self) -> None:
        """Begin runs while there is a job for them and time."""
        while len(self._running) < self._jobs:
            left_s = self._kept.left_s - END_S
            fitting = [run for run in self._waiting if max(SHORTEST_S, self._seconds(run)) < left_s]
            if not fitting:
                return
            self._waiting.remove(fitting[0])
            self._running.append(Training(fitting[0], left_s))

    def _take(self, training: Training) -> None:
        self._running.remove(training)
        result = training.result()
        training.end()
        if result["failed"] is None:
            hz = training.run.work / result["wall_s"]
            self._slowest_hz = hz if self._slowest_hz is None else min(hz, self._slowest_hz)
        self._kept.keep(training.run.key, result)
        print(self._line(self._kept.runs[-1]), flush=True)

    def _seconds(self, run: SerialRun) -> float:
        """Return how long a run takes; nothing before one has ended: it then has what is left of the time."""
        return 0.0 if self._slowest_hz is None else run.work / self._slowest_hz
