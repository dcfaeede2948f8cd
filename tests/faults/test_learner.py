"""A learner that dies goes on from its newest checkpoint, in a new process, while samplers go on."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.supervision.supervisor import supervise
from spreeze.supervision.workers import Workers
from spreeze.views.display import QuietDisplay

if TYPE_CHECKING:
    from conftest import Running, Spreeze

SPLIT = {"split": None, "device": None, "actor_device": "cpu", "critic_device": "cpu"}
OFTEN = {"checkpoint_interval_s": 0.2}


def test_a_killed_learner_goes_on_from_its_checkpoint(spreeze: Spreeze) -> None:
    run = spreeze.start_training("Toy/Endless-v0", **OFTEN)
    wait_for_checkpoint(spreeze, run)
    samplers = {process.pid for process in spreeze.processes("sampler")}
    kept = checkpointed_updates(spreeze)

    (victim,) = spreeze.processes("learner")
    victim.kill()

    spreeze.wait_until(lambda: failures(spreeze), "a warning", run=run)
    spreeze.wait_until(lambda: len(spreeze.processes("learner")) == 1, "a new learner", run=run)
    said = len(spreeze.journal("events"))
    spreeze.wait_until(lambda: "checkpoint" in kinds(spreeze)[said:], "a checkpoint of the new learner", run=run)
    assert {process.pid for process in spreeze.processes("sampler")} == samplers
    run.process.terminate()
    assert run.finish().returncode == 130

    (warning,) = failures(spreeze)
    assert "restarted from checkpoint" in warning["reason"]
    assert "SIGKILL" in warning["reason"]
    assert spreeze.read("summary.json")["updates"] > kept


@pytest.mark.parametrize(
    ("exchange", "index"),
    [
        pytest.param(128, 0, marks=pytest.mark.full),
        pytest.param(128, 1, marks=pytest.mark.full),
        pytest.param("lock-step", 0, marks=pytest.mark.full),
        pytest.param("lock-step", 1, marks=pytest.mark.full),
    ],
)
def test_both_sides_go_on_when_one_is_killed(spreeze: Spreeze, index: int, exchange: int | str) -> None:
    watched = spreeze.with_replay_digests()
    run = spreeze.start_training("Toy/Endless-v0", environment=watched, **SPLIT, **OFTEN, exchange_updates=exchange)
    wait_for_checkpoint(spreeze, run)
    sides = sorted(spreeze.processes("split_learner"), key=lambda process: process.pid)

    sides[index].kill()

    spreeze.wait_until(lambda: failures(spreeze), "a warning", run=run)
    said = len(spreeze.journal("events"))
    spreeze.wait_until(lambda: "checkpoint" in kinds(spreeze)[said:], "a checkpoint of the new sides", run=run)
    run.process.terminate()
    assert run.finish().returncode == 130
    replays = spreeze.replay_digests()
    assert set(replays) == {"critic", "actor"}
    assert replays["critic"] == replays["actor"]


@pytest.mark.full
def test_without_a_checkpoint_a_killed_learner_begins_anew(spreeze: Spreeze) -> None:
    run = spreeze.start_training("Toy/Endless-v0", min_updates_per_step=0.5, max_updates_per_step=0.5)
    spreeze.wait_for_updates(run)
    (victim,) = spreeze.processes("learner")
    victim.kill()
    spreeze.wait_until(lambda: failures(spreeze), "a warning", run=run)
    lines = len(spreeze.journal("metrics"))
    spreeze.wait_until(
        lambda: any(line["update_hz"] > 0 for line in spreeze.journal("metrics")[lines:]), "updates again", run=run
    )
    run.process.terminate()
    assert run.finish().returncode == 130
    (warning,) = failures(spreeze)
    assert "restarted from nothing" in warning["reason"]


@pytest.mark.full
def test_a_learner_that_dies_again_and_again_ends_the_run(spreeze: Spreeze) -> None:
    run = spreeze.start_training("Toy/Endless-v0", checkpoint_interval_s=1000)
    spreeze.wait_for_updates(run)
    killed: set[int] = set()
    while run.process.poll() is None:
        for process in spreeze.processes("learner"):
            if process.pid not in killed:
                process.kill()
                killed.add(process.pid)
    finished = run.finish()
    assert finished.returncode == 1
    assert len(killed) == 4
    assert finished.stderr.splitlines()[-1].startswith("spreeze: learner failed: it was killed by SIGKILL")
    assert spreeze.read("summary.json")["stop_reason"] == "failed"


# Raises in one update, once a file says so.
RAISES_ONCE = """
from pathlib import Path
from spreeze.algorithms.sac import Sac

class RaisesOnce(Sac):
    def update_actor(self, batch, noise):
        if Path("raise").exists():
            Path("raise").unlink()
            raise RuntimeError("the loss fell off")
        return super().update_actor(batch, noise)
"""


@pytest.mark.full
def test_a_learner_that_raises_goes_on_from_its_checkpoint(spreeze: Spreeze) -> None:
    (spreeze.folder / "raises_once.py").write_text(RAISES_ONCE)
    run = spreeze.start_training("Toy/Endless-v0", algo="raises_once:RaisesOnce", **OFTEN)
    wait_for_checkpoint(spreeze, run)
    kept = checkpointed_updates(spreeze)

    (spreeze.folder / "raise").touch()

    spreeze.wait_until(lambda: failures(spreeze), "a warning", run=run)
    said = len(spreeze.journal("events"))
    spreeze.wait_until(lambda: "checkpoint" in kinds(spreeze)[said:], "a checkpoint of the new learner", run=run)
    run.process.terminate()
    assert run.finish().returncode == 130
    (warning,) = failures(spreeze)
    assert "restarted from checkpoint" in warning["reason"]
    assert "RuntimeError: the loss fell off" in warning["reason"]
    assert "raises_once.py" in warning["traceback"]
    assert spreeze.read("summary.json")["updates"] > kept


class HangsOnce:
    """Stops the learner of a run for good, and ends the run when its successor makes updates."""

    def __init__(self, workers: Workers) -> None:
        self._workers, self._victim, self.is_over = workers, 0, False

    def turn(self, _now: float) -> None:
        (learner,) = self._workers.pids_by_role()["learner"]
        has_updates = self._workers.channels.metrics.learner["updates"][0] > 0
        if not self._victim and has_updates:
            self._victim = learner
            os.kill(learner, signal.SIGSTOP)
        self.is_over = has_updates and learner != self._victim


@pytest.mark.full
def test_a_learner_that_hangs_is_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "integration"))
    monkeypatch.setattr("spreeze.supervision.workers.LEARNER_HANG_S", 10.0)  # 120 s in earnest
    small = {"samplers": 1, "envs_per_sampler": 4, "batch_size": 32, "learner_threads": 1, "hidden": (16, 16)}
    quick = {"warmup_steps": 100, "device": "cpu", "split": "no", "run_dir": str(tmp_path / "run")}
    config = Config("Toy/Endless-v0").replace(env_module="toy_envs", max_samplers=1, **small, **quick)

    result = supervise(
        config, EnvSpec.of(config), time.monotonic(), QuietDisplay(), lambda workers, _: HangsOnce(workers)
    )

    assert result.stop_reason == "measured"
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    (warning,) = [event["reason"] for event in events if event["kind"] == "warning"]
    assert "restarted from nothing: there is no checkpoint yet: it has shown no sign of life for 10 s" in warning


@pytest.mark.full
def test_a_learner_that_is_restarted_leaves_damaged_rows_out(spreeze: Spreeze) -> None:
    run = spreeze.start_training("Toy/Endless-v0", **OFTEN)
    wait_for_checkpoint(spreeze, run)
    path = spreeze.run_dir / "checkpoint" / "replay" / "rows-000000000000000.f32"
    with path.open("r+b") as file:  # which the run continues to append to
        first = file.read(1)
        file.seek(0)
        file.write(bytes([first[0] ^ 1]))
    (victim,) = spreeze.processes("learner")
    victim.kill()

    def told() -> list[dict[str, Any]]:
        return [event for event in spreeze.journal("events") if "transitions_left_out" in event]

    spreeze.wait_until(told, "a warning", run=run)
    said = len(spreeze.journal("events"))
    spreeze.wait_until(lambda: "checkpoint" in kinds(spreeze)[said:], "a checkpoint of the new learner", run=run)
    run.process.terminate()
    assert run.finish().returncode == 130
    (warning,) = told()
    assert warning["transitions_left_out"] > 0
    assert "restarted from checkpoint" in failures(spreeze)[0]["reason"]
    updates = spreeze.read("summary.json")["updates"]
    assert spreeze("resume", "run", "--max-updates", updates + 10).returncode == 0
    assert len(told()) == 1


def test_divergence_is_rolled_back_once_and_then_ends_the_run(spreeze: Spreeze) -> None:
    assert spreeze.train("Toy/Endless-v0", max_updates=50).returncode == 0
    change_config(spreeze, learning_rate=1e30)
    published = newest_weights(spreeze)

    finished = spreeze("resume", "run", "--max-updates", 100_000)

    assert finished.returncode == 1
    assert "the updates diverge" in finished.stderr.splitlines()[-1]
    (warning,) = failures(spreeze)
    assert "restarted from checkpoint" in warning["reason"]
    assert "diverge" in warning["reason"]
    assert newest_weights(spreeze) == published  # nothing that is not finite was ever published
    assert spreeze("evaluate", "run", "--episodes", 1).returncode == 0


def wait_for_checkpoint(spreeze: Spreeze, run: Running) -> None:
    spreeze.wait_until(lambda: "checkpoint" in kinds(spreeze), "a checkpoint", run=run)


def kinds(spreeze: Spreeze) -> list[str]:
    return [event["kind"] for event in spreeze.journal("events")]


def failures(spreeze: Spreeze) -> list[dict[str, Any]]:
    events = spreeze.journal("events")
    return [event for event in events if event["kind"] == "warning" and "failed" in event["reason"]]


def checkpointed_updates(spreeze: Spreeze) -> int:
    newest = sorted((spreeze.run_dir / "checkpoint").glob("manifest-*.json"))[-1]
    updates: int = json.loads(newest.read_bytes().partition(b"\n")[2])["counters"]["updates"]
    return updates


def change_config(spreeze: Spreeze, **settings: Any) -> None:
    path = spreeze.run_dir / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


def newest_weights(spreeze: Spreeze) -> str:
    return max(path.name for path in (spreeze.run_dir / "weights").glob("policy-*.safetensors"))
