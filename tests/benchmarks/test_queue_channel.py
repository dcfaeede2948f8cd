"""The queue that the ring is compared with: it keeps the same promises, alone and in a run."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from transition_promises import *  # noqa: F403 (what a channel promises, as tests of the fixture `channel`)
from transition_promises import LAYOUT, collect, numbered

from spreeze.adapt.plan import Plan
from spreeze.channels.transitions import TransitionChannel
from spreeze.channels.transport import Transport
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.config.run_settings import RunSettings
from spreeze.supervision.supervisor import supervise
from spreeze.supervision.workers import Workers
from spreeze.views.display import QuietDisplay

if TYPE_CHECKING:
    from conftest import Running, Spreeze

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

from ablation.queue_channel import QueueChannel  # noqa: E402


@pytest.fixture
def channel() -> Iterator[TransitionChannel]:
    made = QueueChannel("test")
    made.allocate(LAYOUT, 64)
    yield made
    made.close()


def test_a_queue_reaches_both_readers_too() -> None:
    channel = QueueChannel("test", readers=2)
    channel.writer().write(numbered(0, 5), lambda: False)
    for side in (0, 1):
        np.testing.assert_array_equal(collect(channel.reader(side), 5), numbered(0, 5))
    channel.close()


def test_nobody_can_tell_how_full_a_queue_is(channel: TransitionChannel) -> None:
    channel.writer().write(numbered(0, 8), lambda: False)
    assert channel.fill() is None
    assert channel.written() is None


# --- in a run ---------------------------------------------------------------------------------------------------


def launch(spreeze: Spreeze, env: str, **settings: Any) -> Running:
    """Start a small training through queues."""
    program = (BENCHMARKS / "ablation" / "launch.py", spreeze.folder / "cache", 0, "", "queue")
    return spreeze.start_python(*program, "train", env, *spreeze.small(**settings))


def test_a_run_through_queues_loses_nothing(spreeze: Spreeze) -> None:
    finished = launch(
        spreeze, "Toy/Point-v0", max_env_steps=2000, env_kwargs={"count_dir": str(spreeze.folder)}
    ).finish()

    assert finished.returncode == 0, finished.stderr
    summary = spreeze.read("summary.json")
    assert summary["stop_reason"] == "max_env_steps"
    assert summary["env_steps"] == 2000
    assert sum(path.stat().st_size for path in spreeze.folder.glob("sampler-*")) == 2000


@pytest.mark.parametrize(("fault", "returncode"), [("raise", 0), ("segfault", 1)])
def test_what_a_killed_sampler_leaves_in_a_queue_is_not_trusted(
    fault: str, returncode: int, spreeze: Spreeze, in_full: bool
) -> None:
    if not in_full:
        pytest.skip("queues are there for comparison: --full-faults")
    counted = spreeze.folder / "counted"
    counted.mkdir()
    faulty = {"folder": str(spreeze.folder), "faults": [fault], "count_dir": str(counted), "after": 90}
    finished = launch(spreeze, "Toy/Faulty-v0", env_kwargs=faulty, max_env_steps=4000, max_seconds=60).finish()

    assert finished.returncode == returncode, finished.stderr
    assert spreeze.read("summary.json")["stop_reason"] == ("max_env_steps" if fault == "raise" else "failed")


@pytest.mark.full
def test_killed_supervisor_takes_all_processes_with_it(spreeze: Spreeze) -> None:
    run = launch(spreeze, "Toy/Point-v0", samplers=2, max_seconds=90)
    spreeze.wait_for_updates(run)
    run.process.kill()
    run.finish()
    spreeze.wait_until(lambda: not spreeze.processes(), "the end of all processes")
    assert not (spreeze.run_dir / "summary.json").exists()


class Changes:
    """Drives a run from one number of samplers to the next, each as soon as the one before is there."""

    is_over = False

    def __init__(self, workers: Workers, counts: Sequence[int]) -> None:
        self._workers, self.left = workers, list(counts)
        self.channels, self.steps = workers.channels, 0
        workers.use(self._settings())

    def turn(self, _now: float) -> None:
        if self.left and self._workers.has_reached(self._settings()):
            self.steps = int(self.channels.metrics.samplers["env_steps"].sum())
            self.left.pop(0)
            if self.left:
                self._workers.use(self._settings())

    def _settings(self) -> RunSettings:
        return RunSettings(samplers=self.left[0], envs_per_sampler=4, batch_size=32, learner_threads=1)


@pytest.mark.full
def test_rows_of_dismissed_samplers_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "integration"))
    drivers: list[Changes] = []

    def make(workers: Workers, _plan: Plan) -> Changes:
        drivers.append(Changes(workers, [1, 4, 2, 3, 1, 4]))
        return drivers[0]

    # So slow that the limit comes after the last change; beyond it samplers take no step but the one they are in.
    slow = {"env_kwargs": {"step_s": 0.001}, "min_updates_per_step": 0.0, "max_updates_per_step": 0.2}
    small = {"hidden": (16, 16), "batch_size": 32, "learner_threads": 1, "samplers": 1, "envs_per_sampler": 4}
    limits = {"max_env_steps": 20_000, "max_samplers": 4, "warmup_steps": 100, "split": "no", "device": "cpu"}
    config = Config("Toy/Point-v0").replace(
        env_module="toy_envs", run_dir=str(tmp_path / "run"), **slow, **small, **limits
    )
    transport = Transport(QueueChannel)
    result = supervise(config, EnvSpec.of(config), time.monotonic(), QuietDisplay(), make, transport)
    # Rows that got lost would leave the run waiting for them.
    assert result.stop_reason == "max_env_steps"
    assert drivers[0].left == []
    assert drivers[0].steps < 20_000 <= int(drivers[0].channels.metrics.learner["rows_consumed"][0])
