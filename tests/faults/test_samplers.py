"""Samplers are expendable: whatever happens to one, another takes its place, no row is lost and nobody else stops."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.supervision.samplers import PATIENCE
from spreeze.supervision.supervisor import supervise
from spreeze.views.display import QuietDisplay

if TYPE_CHECKING:
    from conftest import Running, Spreeze

GUARD_S = 120.0  # against a hang, not an expectation
HANG_S = 4.0  # a sampler that starts on a machine with four times the work it can do is silent for two seconds
MAX_MB = 120  # a sampler of these environments takes 50
ENVS, N_STEP = 4, 3

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes through /proc")


def warnings(spreeze: Spreeze) -> list[dict[str, Any]]:
    return [event for event in spreeze.journal("events") if event["kind"] == "warning"]


def faulty(spreeze: Spreeze, faults: list[str], **env_kwargs: Any) -> dict[str, Any]:
    """Return the arguments of an environment with these faults, that notes each step it makes."""
    counted = spreeze.folder / "counted"
    counted.mkdir(exist_ok=True)
    return {"folder": str(spreeze.folder), "faults": faults, "count_dir": str(counted), **env_kwargs}


def steps_played(spreeze: Spreeze) -> int:
    return sum(path.stat().st_size for path in (spreeze.folder / "counted").glob("sampler-*"))


def _others(spreeze: Spreeze) -> set[int]:
    return {process.pid for role in ("learner", "evaluator") for process in spreeze.processes(role)}


def wait_for_steps(spreeze: Spreeze, run: Running) -> None:
    """Wait until more steps were stored than are by now."""
    lines = spreeze.journal("metrics")
    before = lines[-1]["env_steps"] if lines else 0
    spreeze.wait_until(lambda: spreeze.journal("metrics")[-1]["env_steps"] > before, "further steps", GUARD_S, run)


SAYS = {
    "raise": "ZeroDivisionError: the wheel fell off",
    "segfault": "SIGSEGV",
    "exit": "exited with code 7",
    "hang": f"no sign of life for {HANG_S:g} s",
    "leak": f"more than the {MAX_MB} of --max-sampler-mb",
}


@pytest.mark.parametrize(
    ("where", "after", "faults", "split"),
    [
        ("step", 90, ["raise", "segfault", "hang", "exit"], "no"),
        ("reset", 4, ["leak"], "no"),
        ("reset", 4, ["raise", "hang", "exit", "segfault"], "yes"),
        ("step", 90, ["leak", "raise", "segfault"], "yes"),
    ],
    ids=["step", "reset", "reset-split", "step-split"],
)
def test_whatever_happens_in_an_environment_another_takes_its_place(
    where: str, after: int, faults: list[str], split: str, spreeze: Spreeze, in_full: bool
) -> None:
    if split == "yes" and not in_full:
        pytest.skip("what is left, with two learners that read: --full-faults")
    # Transitions over several steps: what a sampler had under way dies with it, and must not be waited for.
    finished = spreeze.train(
        "Toy/Faulty-v0",
        env_kwargs=faulty(spreeze, faults, where=where, after=after),
        are_programs="leak" in faults,  # a fork has what it was forked from in its memory
        split=split,
        n_step=N_STEP,
        hang_s=HANG_S,
        max_sampler_mb=MAX_MB if "leak" in faults else None,
        min_updates_per_step=0,
        max_env_steps=4000,
        max_seconds=GUARD_S,
    )

    assert finished.returncode == 0, finished.stderr
    summary = spreeze.read("summary.json")
    assert summary["stop_reason"] == "max_env_steps"
    told = warnings(spreeze)
    assert [warning["role"] for warning in told] == ["sampler 0"] * len(faults)
    for warning, fault in zip(told, faults, strict=True):
        assert "another takes its place" in warning["reason"]
        assert SAYS[fault] in warning["reason"]
        assert ("toy_envs.py" in warning.get("traceback", "")) == (fault == "raise")
    assert len(list((spreeze.folder / "counted").glob("sampler-*"))) == len(faults) + 1
    # All that was played and is not stored is what each of them had under way, and a vector step at the end.
    assert summary["env_steps"] >= 4000
    assert 0 <= steps_played(spreeze) - summary["env_steps"] <= ENVS * (N_STEP * len(faults) + 1)


def test_an_environment_that_always_fails_ends_the_run_once(spreeze: Spreeze) -> None:
    finished = spreeze.train(
        "Toy/Faulty-v0", env_kwargs=faulty(spreeze, ["raise"] * 100, after=50), max_seconds=GUARD_S
    )

    assert finished.returncode == 1
    assert finished.stderr.splitlines()[-1].startswith("spreeze: sampler 0 failed: ZeroDivisionError")
    assert finished.stderr.endswith("; `spreeze doctor ENV` says what is wrong with an environment\n")
    assert finished.stderr.count("Traceback") == 1
    summary = spreeze.read("summary.json")
    assert summary["stop_reason"] == "failed"
    (error,) = [event for event in spreeze.journal("events") if event["kind"] == "error"]
    assert SAYS["raise"] in error["reason"]
    assert "toy_envs.py" in error["traceback"]
    # What each of them had written before was taken in; the last vector step of each was never whole.
    assert len(list((spreeze.folder / "counted").glob("sampler-*"))) == PATIENCE
    assert summary["env_steps"] == PATIENCE * 50 * ENVS


def test_a_killed_sampler_is_replaced_and_nobody_else_notices(spreeze: Spreeze, in_full: bool) -> None:
    run = spreeze.start_training("Toy/Point-v0", samplers=2, max_seconds=600)
    spreeze.wait_for_updates(run)
    others = _others(spreeze)
    kills = 20 if in_full else 2
    for _ in range(kills):
        spreeze.wait_until(lambda: len(spreeze.processes("sampler")) == 2, "two samplers", run=run)
        victim = spreeze.processes("sampler")[0]
        victim.kill()
        spreeze.wait_until(lambda: not victim.is_running(), "its end", run=run)  # noqa: B023 (called at once)
        wait_for_steps(spreeze, run)
    assert _others(spreeze) == others
    os.kill(run.process.pid, signal.SIGINT)

    assert run.finish().returncode == 130
    told = warnings(spreeze)
    assert len(told) == kills
    assert all("killed by SIGKILL" in warning["reason"] for warning in told)
    assert all(warning["role"].startswith("sampler") for warning in told)


@pytest.mark.full
def test_a_pause_is_no_hang(spreeze: Spreeze) -> None:
    hang_s = 2.5
    run = spreeze.start_training("Toy/Point-v0", hang_s=hang_s, max_seconds=600)
    spreeze.wait_for_updates(run)
    everyone = spreeze.processes()

    # One of them for less than the limit, which is nothing.
    (sampler,) = spreeze.processes("sampler")
    sampler.suspend()
    sampler.resume()
    wait_for_steps(spreeze, run)

    # All of them for longer, as a laptop sleeps; the supervisor is the first to go on, and looks at the others.
    for process in everyone:
        process.suspend()
    time.sleep(1.5 * hang_s)  # the pause itself
    lines = len(spreeze.journal("metrics"))
    os.kill(run.process.pid, signal.SIGCONT)
    spreeze.wait_until(lambda: len(spreeze.journal("metrics")) > lines, "a turn of the supervisor", run=run)
    for process in everyone:
        process.resume()
    wait_for_steps(spreeze, run)
    assert {process.pid for process in spreeze.processes()} == {process.pid for process in everyone}
    assert warnings(spreeze) == []

    # One that is stopped for good hangs.
    sampler.suspend()
    spreeze.wait_until(lambda: warnings(spreeze), "a warning", GUARD_S, run)
    wait_for_steps(spreeze, run)
    os.kill(run.process.pid, signal.SIGINT)
    assert run.finish().returncode == 130
    (warning,) = warnings(spreeze)
    assert "no sign of life for 2.5 s" in warning["reason"]


@pytest.mark.full
def test_an_environment_that_fails_now_and_then_is_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "integration"))
    monkeypatch.setattr(
        "spreeze.supervision.samplers.SAMPLED_S", 0.1
    )  # 3 s in earnest, which as many lives would take each
    faults = ["raise"] * (PATIENCE + 1)
    env_kwargs = {"folder": str(tmp_path), "faults": faults, "after": 200, "step_s": 0.0005}
    small = {"samplers": 1, "envs_per_sampler": ENVS, "batch_size": 32, "learner_threads": 1, "hidden": (16, 16)}
    quick = {"warmup_steps": 100, "min_updates_per_step": 0.0, "device": "cpu", "split": "no", "adapt": False}
    where = {"run_dir": str(tmp_path / "run"), "env_module": "toy_envs", "env_kwargs": env_kwargs}
    limits = {"max_env_steps": (200 * len(faults) + 100) * ENVS, "max_seconds": GUARD_S}
    config = Config("Toy/Faulty-v0").replace(**small, **quick, **where, **limits)

    result = supervise(config, EnvSpec.of(config), time.monotonic(), QuietDisplay())

    assert result.stop_reason == "max_env_steps"
    assert len(list(tmp_path.glob("fault-*"))) == len(faults)
