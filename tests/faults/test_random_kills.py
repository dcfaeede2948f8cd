"""A night in five minutes: random processes of a run are killed again and again, and it goes on training."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from conftest import Running, Spreeze

EXPENDABLE = ("sampler", "evaluator", "viewer", "dashboard")
SEED = 7
SAMPLERS, ENVS = 2, 4

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes through /proc")


@pytest.mark.full
@pytest.mark.parametrize(
    ("roles", "kills", "seconds"), [(EXPENDABLE, 15, 90.0), ((*EXPENDABLE, "learner"), 50, 300.0)]
)
def test_a_run_outlives_its_processes(spreeze: Spreeze, roles: tuple[str, ...], kills: int, seconds: float) -> None:
    chance = random.Random(SEED)
    shown = {"no_dashboard": None, "dashboard": True, "checkpoint_interval_s": 1}
    counted = spreeze.folder / "counted"
    counted.mkdir()
    env_kwargs = {"count_dir": str(counted)}
    run = spreeze.start_training("Toy/Drawn-v0", env_kwargs=env_kwargs, samplers=SAMPLERS, max_seconds=1200, **shown)
    spreeze.wait_for_updates(run)
    deadline = time.monotonic() + seconds
    for left in range(kills, 0, -1):
        _random_process(spreeze, chance, run, roles).kill()
        time.sleep(max(0.0, deadline - time.monotonic()) / left)  # the kills are spread over the time
    before = spreeze.journal("metrics")[-1]
    spreeze.wait_until(
        lambda: all(spreeze.journal("metrics")[-1][name] > before[name] for name in ("env_steps", "updates")),
        "further steps and updates",
        run=run,
    )

    os.kill(run.process.pid, signal.SIGINT)

    finished = run.finish()
    assert finished.returncode == 130, finished.stderr
    summary = spreeze.read("summary.json")
    assert summary["stop_reason"] == "interrupted"
    assert not [event for event in spreeze.journal("events") if event["kind"] == "error"]
    lives = list(counted.glob("sampler-*"))
    assert len(lives) > SAMPLERS
    missing = sum(path.stat().st_size for path in lives) - summary["env_steps"]
    # All that was played is stored, but for the vector step that each had under way. A learner that was killed
    # has lost what came after its checkpoint.
    assert missing >= 0
    assert missing <= len(lives) * ENVS or "learner" in roles


@pytest.mark.full
def test_a_night_in_minutes(tmp_path: Path) -> None:
    """All faults of `night_faults.py`, in the order of a deck of cards."""
    script = Path(__file__).parents[2] / "benchmarks" / "soak.py"
    words = ("--minutes", "6", "--every", "1", "--seed", str(SEED), "--folder", tmp_path)
    ended = subprocess.run([sys.executable, script, *words], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr


def _random_process(spreeze: Spreeze, chance: random.Random, run: Running, wanted: tuple[str, ...]) -> psutil.Process:
    there: list[psutil.Process] = []

    def anyone() -> bool:
        # By role first: samplers are many, and the others matter as much.
        roles = {role: found for role in wanted if (found := spreeze.processes(role))}
        there[:] = [chance.choice(roles[chance.choice(sorted(roles))])] if roles else []
        return bool(there)

    spreeze.wait_until(anyone, "a process to kill", run=run)
    return there[0]
