"""Bare loops run side by side, answer for themselves, and leave nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from spreeze.commands.bench.raw_loop import measure_raw_loops
from spreeze.errors import ProcessFailed

# Notes the moment of each step in a file for each process.
NOTING = """
import os, time
from pathlib import Path
import gymnasium, numpy as np

class Noting(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-2, 2, (3,), np.float32)
    steps = 0

    def __init__(self, fails=False):
        print("an environment that talks")
        self.fails = fails
        self.file = open(Path(os.environ["NOTES"]) / str(os.getpid()), "w")

    def reset(self, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.steps += 1
        if self.fails and self.steps > 50:
            raise RuntimeError("the wheel fell off")
        print(time.monotonic(), file=self.file, flush=True)
        time.sleep(0.001)
        return np.zeros(1, np.float32), 0.0, False, self.steps % 7 == 0, {}

gymnasium.register("Noting-v0", Noting)
gymnasium.register("NotingFails-v0", Noting, kwargs={"fails": True})
"""


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the loops of a test write, whose environments are in the module `noting`."""
    (tmp_path / "noting.py").write_text(NOTING)
    (tmp_path / "notes").mkdir()
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    yield tmp_path / "notes"
    assert not [
        child for child in psutil.Process().children() if "spreeze.commands.bench.raw_loop" in child.cmdline()
    ]


def test_loops_run_at_the_same_time(notes: Path) -> None:
    rates = measure_raw_loops("noting:Noting-v0", seconds=0.5, loop_count=3)

    assert len(rates) == 3
    moments = [[float(line) for line in path.read_text().splitlines()] for path in notes.iterdir()]
    assert len(moments) == 3
    assert max(loop[0] for loop in moments) < min(loop[-1] for loop in moments)
    for rate in rates:
        assert 0 < rate <= 1000  # a step takes a millisecond or more


def test_loop_that_fails_is_named_with_its_cause(notes: Path) -> None:
    with pytest.raises(ProcessFailed, match="bare loop failed: RuntimeError: the wheel fell off") as failed:
        measure_raw_loops("noting:NotingFails-v0", seconds=30.0, loop_count=2)

    assert "in step" in failed.value.traceback
    assert len(list(notes.iterdir())) == 2


def test_loop_that_cannot_begin_is_named_with_its_cause(notes: Path) -> None:
    with pytest.raises(ProcessFailed, match="there is no environment 'NoSuch-v0'"):
        measure_raw_loops("NoSuch-v0", seconds=0.1, loop_count=2)

    assert not list(notes.iterdir())


def test_a_window_that_is_over_when_the_loop_gets_to_it_gives_a_rate_all_the_same() -> None:
    """As on a machine that is too busy to run the loop within the window."""
    command = [sys.executable, "-m", "spreeze.commands.bench.raw_loop", "Pendulum-v1"]
    finished = subprocess.run(command, input="0 0\n", capture_output=True, text=True, check=True)
    ready, rate = finished.stdout.split()
    assert ready == "ready"
    assert float(rate) > 0
