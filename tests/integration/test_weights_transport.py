"""A run whose weights go through shared memory: it survives its learner, ends with files, and can be resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Spreeze


def versions(spreeze: Spreeze) -> list[int]:
    return [line["version"] for line in spreeze.journal("evaluations")]


def test_versions_rise_beyond_a_killed_learner_and_into_the_next_sitting(spreeze: Spreeze) -> None:
    run = spreeze.start_training("Toy/Point-v0", weights_transport="shm", checkpoint_interval_s=0.2)
    checkpoints = spreeze.run_dir / "checkpoint"
    spreeze.wait_until(lambda: list(checkpoints.glob("manifest-*")), "a checkpoint", run=run)
    spreeze.wait_until(lambda: versions(spreeze), "an evaluation", run=run)
    (learner,) = spreeze.processes("learner")
    learner.kill()
    spreeze.wait_until(lambda: [e for e in spreeze.journal("events") if e["kind"] == "warning"], "a warning", run=run)
    before = len(versions(spreeze))
    spreeze.wait_until(lambda: len(versions(spreeze)) > before + 1, "evaluations of the new learner's", run=run)
    run.process.terminate()
    assert run.finish().returncode == 130
    updates = spreeze.read("summary.json")["updates"]
    session = versions(spreeze)
    last = max(int(path.stem.partition("-")[2]) for path in (spreeze.run_dir / "weights").glob("policy-*"))
    assert last >= session[-1]  # the policy at the end is the user's

    finished = spreeze("resume", "run", "--max-updates", updates + 50)

    assert finished.returncode == 0, finished.stderr
    assert versions(spreeze)[: len(session)] == session
    assert versions(spreeze) == sorted(set(versions(spreeze)))
    newest = max(int(path.stem.partition("-")[2]) for path in (spreeze.run_dir / "weights").glob("policy-*"))
    assert newest > last
