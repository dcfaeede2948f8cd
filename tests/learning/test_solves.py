"""The default task is solved within a bounded number of updates. `test_probes.py` has the other algorithms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import spreeze as package

if TYPE_CHECKING:
    from conftest import Spreeze

MAX_UPDATES = 8000  # several times what it usually takes: a bound on learning, not on speed
HANG_GUARD_S = 600.0


@pytest.mark.learning
def test_pendulum_is_solved_in_one_process(tmp_path: Path) -> None:
    # The default task with networks that are as large as it needs.
    small = {"hidden": (64, 64), "batch_size": 128, "eval_episodes": 5, "device": "cpu"}
    limits = {"target_return": -200, "max_updates": MAX_UPDATES}
    result = package.train("Pendulum-v1", **small, **limits, serial=True, quiet=True, run_dir=tmp_path / "run")
    assert result.stop_reason == "target_return"
    assert result.best_return >= -200
    assert result.updates < MAX_UPDATES


@pytest.mark.learning
def test_pendulum_is_solved_by_actor_and_critics_that_wait_for_nobody(spreeze: Spreeze) -> None:
    words = ["train", "Pendulum-v1", "--target-return", "-200", "--max-updates", 2 * MAX_UPDATES, "--run-dir", "run"]

    small = ("--device", "cpu", "--hidden", 64, 64, "--batch-size", 128)
    finished = spreeze.start(*words, *small, "--split", "yes").finish(HANG_GUARD_S)

    assert finished.returncode == 0, finished.stderr
    assert spreeze.read("summary.json")["stop_reason"] == "target_return"
    assert spreeze.journal("metrics")[-1]["exchanged_bytes"] > 0
