"""The evaluation of the newest version at the end: made, told and bounded; not after Ctrl-C, nor where unwanted."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Spreeze

# Paced, so that there is an evaluation of an early version; the next is not due before the end.
ONCE: dict[str, Any] = {
    "eval_interval_s": 600,
    "min_updates_per_step": 0.4,
    "max_updates_per_step": 0.5,
    "max_updates": 600,
}


def newest_version(run: Path) -> int:
    return max(int(path.stem.partition("-")[2]) for path in (run / "weights").glob("policy-*"))


def last_events(spreeze: Spreeze) -> list[str]:
    return [event["reason"] for event in spreeze.journal("events") if event["kind"] == "last_evaluation"]


def test_the_newest_version_is_scored_after_the_end(spreeze: Spreeze) -> None:
    # Of the first evaluation one episode does not count, and so neither does it.
    bad = {"value": "inf", "step_s": 0.002}
    done = spreeze.train("Toy/BadEvaluation-v0", **ONCE, env_kwargs=bad, target_return=-1e6, quiet=None)
    assert done.returncode == 0, done.stderr
    first, last = spreeze.journal("evaluations")
    version = newest_version(spreeze.run_dir)
    assert first["mean_return"] is None
    assert first["version"] < last["version"] == version
    summary = spreeze.read("summary.json")
    assert summary["last_evaluation_s"] > 0
    assert summary["best_return"] == last["mean_return"]
    assert spreeze.read("best/evaluation.json")["version"] == version
    # It came too late for the target.
    assert last["wall_s"] > summary["wall_s"]
    assert (summary["stop_reason"], summary["time_to_target_s"]) == ("max_updates", None)
    (said,) = last_events(spreeze)
    assert said.startswith(f"the newest version, {version}, was evaluated at the end, in ")
    assert f"The newest version, {version}, was evaluated at the end" in done.stdout


def test_it_can_be_left_out(spreeze: Spreeze) -> None:
    done = spreeze.train("Toy/Point-v0", **ONCE, env_kwargs={"step_s": 0.002}, no_last_evaluation=True)
    assert done.returncode == 0, done.stderr
    versions = [line["version"] for line in spreeze.journal("evaluations")]
    assert newest_version(spreeze.run_dir) not in versions
    assert len(versions) <= 1
    assert spreeze.read("summary.json")["last_evaluation_s"] == 0.0
    assert last_events(spreeze) == []


def test_ctrl_c_means_now(spreeze: Spreeze) -> None:
    run = spreeze.start_training("Toy/Point-v0", **{**ONCE, "max_updates": None, "max_seconds": 90})
    spreeze.wait_until(lambda: spreeze.journal("evaluations"), "an evaluation", run=run)
    os.kill(run.process.pid, signal.SIGINT)
    assert run.finish().returncode == 130
    assert len(spreeze.journal("evaluations")) == 1
    assert spreeze.read("summary.json")["last_evaluation_s"] == 0.0


def test_it_is_given_up_in_time(spreeze: Spreeze) -> None:
    # An evaluation takes ten seconds, twice as long as there is for it.
    done = spreeze.train("Toy/SlowEvaluation-v0", **ONCE, quiet=None)
    assert done.returncode == 0, done.stderr
    assert spreeze.journal("evaluations") == []
    (said,) = last_events(spreeze)
    assert said.startswith("the newest version was not evaluated: that takes more than ")
    assert 0 < spreeze.read("summary.json")["last_evaluation_s"] < 10
    assert "The newest version was not evaluated" in done.stdout
