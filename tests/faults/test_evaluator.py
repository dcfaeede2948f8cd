"""The evaluator never ends a run: it is replaced, and where that does not help the run goes on without it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spreeze.supervision.optional_processes import PATIENCE

if TYPE_CHECKING:
    from conftest import Running, Spreeze

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes through /proc")

FAULTS = ["raise", "segfault", "hang"]


def warnings(spreeze: Spreeze) -> list[dict[str, Any]]:
    return [event for event in spreeze.journal("events") if event["kind"] == "warning"]


def interrupt(run: Running) -> None:
    os.kill(run.process.pid, signal.SIGINT)
    assert run.finish().returncode == 130


def test_an_evaluator_that_fails_or_is_killed_is_replaced(spreeze: Spreeze) -> None:
    env_kwargs = {"folder": str(spreeze.folder), "faults": FAULTS, "role": "evaluator", "where": "reset", "after": 2}
    run = spreeze.start_training("Toy/Faulty-v0", env_kwargs=env_kwargs, hang_s=4, max_seconds=600)
    spreeze.wait_until(lambda: spreeze.journal("evaluations"), "an evaluation", run=run)
    spreeze.wait_until(lambda: len(warnings(spreeze)) == len(FAULTS), "all faults", run=run)
    spreeze.wait_until(lambda: spreeze.processes("evaluator"), "an evaluator", run=run)

    (victim,) = spreeze.processes("evaluator")
    victim.kill()

    spreeze.wait_until(lambda: len(warnings(spreeze)) > len(FAULTS), "a warning", run=run)
    before = len(spreeze.journal("evaluations"))
    spreeze.wait_until(lambda: len(spreeze.journal("evaluations")) > before, "further evaluations", run=run)
    interrupt(run)
    told = warnings(spreeze)
    assert {warning["role"] for warning in told} == {"evaluator"}
    assert all("evaluator failed, it is restarted" in warning["reason"] for warning in told)
    says = ["the wheel fell off", "SIGSEGV", "no sign of life", "SIGKILL"]
    assert all(words in warning["reason"] for words, warning in zip(says, told, strict=True))
    assert "toy_envs.py" in told[0]["traceback"]


@pytest.mark.full
def test_a_run_goes_on_without_an_evaluator_that_always_fails(spreeze: Spreeze) -> None:
    env_kwargs = {"folder": str(spreeze.folder), "faults": ["raise"] * 100, "role": "evaluator"}
    # Any evaluation would reach this target.
    run = spreeze.start_training("Toy/Faulty-v0", env_kwargs=env_kwargs, target_return=-1e6, max_seconds=600)
    spreeze.wait_until(
        lambda: any("without evaluations" in warning["reason"] for warning in warnings(spreeze)), "a verdict", run=run
    )

    updates = spreeze.journal("metrics")[-1]["updates"]
    spreeze.wait_until(lambda: spreeze.journal("metrics")[-1]["updates"] > updates, "further updates", run=run)

    interrupt(run)
    told = warnings(spreeze)
    assert len(told) == PATIENCE["evaluator"]
    assert sum("without evaluations" in warning["reason"] for warning in told) == 1
    summary = spreeze.read("summary.json")
    assert (summary["best_return"], summary["time_to_target_s"]) == (None, None)
    assert spreeze.journal("evaluations") == []
