"""`spreeze doctor ENV` reports on an environment, and a training warns of what it would report."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Finished, Spreeze

NOISY = {"TOY_NOISE": "1"}


def doctor(spreeze: Spreeze, env: str, *words: str) -> Finished:
    finished = spreeze("doctor", f"Toy/{env}-v0", "--env-module", "toy_envs", *words, environment=NOISY)
    assert finished.stderr == ""
    return finished


def test_nothing_is_wrong(spreeze: Spreeze) -> None:
    finished = doctor(spreeze, "DictObservations")

    assert finished.returncode == 0
    name, observations, actions, step, reset, verdict = finished.stdout.splitlines()
    assert name == "Toy/DictObservations-v0"
    assert observations.split(maxsplit=1)[1].startswith(
        "Dict of position: Box of shape (1,), float32, from -10 to 10; "
    )
    assert actions.split(maxsplit=1)[1] == "Box of shape (1,), float32, from -1 to 1"
    for line in (step, reset):
        assert "s, of CPU time " in line
    assert verdict == "Nothing is wrong with it."


def test_warnings_still_allow_to_train(spreeze: Spreeze) -> None:
    finished = doctor(spreeze, "OddObservation", "--env-kwargs", '{"odd": [1.0]}')

    assert finished.returncode == 0
    assert "  warning  step returns what `observation_space` does not allow: observation is a list" in finished.stdout
    assert "           fix: return `np.array(..., dtype=np.float32)`\n" in finished.stdout
    assert "It can be trained on" in finished.stdout


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ("LyingSpace", "has shape (1,), its space says (3,)"),
        ("MixedActions", "has Dict actions"),
        ("ResetRaises", "reset raised LookupError: no start position"),
        ("ConstructorExits", "SystemExit: no licence"),
    ],
)
def test_errors_make_it_fail(env: str, says: str, spreeze: Spreeze) -> None:
    finished = doctor(spreeze, env)

    assert finished.returncode == 1
    (error,) = [line for line in finished.stdout.splitlines() if line.startswith("  error    ")]
    assert says in error
    assert "Traceback" not in finished.stdout
    assert "It cannot be trained on" in finished.stdout
    # Output of the environment is not mixed into the report, but may explain what has failed.
    assert finished.stdout.index("It printed\n") < finished.stdout.index("noise on stdout at import")


def test_limit_of_the_user(spreeze: Spreeze) -> None:
    without, limited = doctor(spreeze, "Endless"), doctor(spreeze, "Endless", "--max-episode-steps", "50")

    assert "note     Gymnasium knows no time limit of it" in without.stdout
    assert "note" not in limited.stdout
    assert without.returncode == limited.returncode == 0


def test_a_step_that_never_returns_is_an_error_with_its_place(spreeze: Spreeze) -> None:
    faults = {"folder": str(spreeze.folder), "faults": ["hang"], "after": 3, "role": "supervise"}
    finished = doctor(spreeze, "Faulty", "--env-kwargs", json.dumps(faults), "--hang-s", "4")

    assert finished.returncode == 1
    (error,) = [line for line in finished.stdout.splitlines() if line.startswith("  error    ")]
    assert re.search(r"step hangs: it did not return within 4 s \(\S*toy_envs.py:\d+, in _hang\)", error)
    assert "observations  Box" in finished.stdout


def test_ctrl_c_says_where_it_was(spreeze: Spreeze) -> None:
    faults = {"folder": str(spreeze.folder), "faults": ["hang"], "after": 3, "role": "supervise"}
    words = ("doctor", "Toy/Faulty-v0", "--env-module", "toy_envs", "--env-kwargs", json.dumps(faults))
    running = spreeze.start(*words)
    spreeze.wait_until(lambda: any(spreeze.folder.glob("fault-*")), "the step that hangs", run=running)
    os.kill(running.process.pid, signal.SIGINT)
    finished = running.finish()
    assert finished.returncode == 130
    assert re.fullmatch(r"spreeze: interrupted \(\S*toy_envs.py:\d+, in \w+\)\n", finished.stderr)


def test_help(spreeze: Spreeze) -> None:
    finished = spreeze("doctor", "--help")

    assert finished.returncode == 0
    for flag in ("--env-module", "--env-kwargs", "--max-episode-steps", "--hang-s", "Without ENV"):
        assert flag in finished.stdout


def test_training_warns_once(spreeze: Spreeze) -> None:
    def warnings() -> list[dict[str, Any]]:
        return [event for event in spreeze.journal("events") if "a list, not a NumPy array" in event["reason"]]

    run = spreeze.start_training("Toy/OddObservation-v0", env_kwargs={"odd": [1.0]}, max_seconds=600)
    spreeze.wait_until(lambda: spreeze.journal("evaluations"), "an evaluation", run=run)
    (warning,) = warnings()
    assert warning["kind"] == "warning"
    assert warning["reason"] == (
        "Toy/OddObservation-v0: step returns what `observation_space` does not allow: observation is a list, "
        "not a NumPy array; return `np.array(..., dtype=np.float32)`"
    )

    # One that replaces it, or resumes the run, does not say so once more.
    (evaluator,) = spreeze.processes("evaluator")
    evaluator.kill()
    before = len(spreeze.journal("evaluations"))
    spreeze.wait_until(lambda: len(spreeze.journal("evaluations")) > before, "further evaluations", run=run)
    os.kill(run.process.pid, signal.SIGINT)
    finished = run.finish()
    assert finished.returncode == 130
    assert f"warning: {warning['reason']}" in finished.stdout
    resumed = spreeze("resume", "run", "--target-return", "-1000")
    assert resumed.returncode == 0, resumed.stderr
    assert len(warnings()) == 1


def test_training_on_a_well_behaved_environment_warns_of_nothing(spreeze: Spreeze) -> None:
    finished = spreeze.train("Toy/DictObservations-v0", target_return=-1000, max_seconds=90)

    assert finished.returncode == 0, finished.stderr
    assert spreeze.journal("evaluations")
    assert [event for event in spreeze.journal("events") if event["kind"] == "warning"] == []
