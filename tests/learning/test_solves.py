"""The default settings solve the default task within a bounded number of updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Spreeze

MAX_UPDATES = 8000  # five times what it usually takes: a bound on learning, not on speed
HANG_GUARD_S = 600.0


@pytest.mark.learning
@pytest.mark.parametrize("algo", ["sac", "td3", "ddpg"])
def test_every_algorithm_solves_pendulum(spreeze: Spreeze, algo: str) -> None:
    words = ["train", "Pendulum-v1", "--target-return", "-200", "--max-updates", MAX_UPDATES, "--run-dir", "run"]

    finished = spreeze.start(*words, "--algo", algo).finish(HANG_GUARD_S)

    assert finished.returncode == 0, finished.stderr
    summary = spreeze.read("summary.json")
    assert summary["stop_reason"] == "target_return"
    assert summary["best_return"] >= -200
    assert summary["updates"] < MAX_UPDATES


@pytest.mark.learning
@pytest.mark.parametrize("split", ["yes", "no"])
def test_actor_and_critics_solve_pendulum_apart_and_together(spreeze: Spreeze, split: str) -> None:
    words = ["train", "Pendulum-v1", "--target-return", "-200", "--max-updates", 2 * MAX_UPDATES, "--run-dir", "run"]

    finished = spreeze.start(*words, "--device", "cpu", "--split", split).finish(HANG_GUARD_S)

    assert finished.returncode == 0, finished.stderr
    assert spreeze.read("summary.json")["stop_reason"] == "target_return"
    assert (spreeze.journal("metrics")[-1]["exchanged_bytes"] > 0) == (split == "yes")
