"""A run that has stopped, however it stopped, goes on as if it never had."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import load_file

if TYPE_CHECKING:
    from conftest import Running, Spreeze

SPLIT = {"split": None, "device": None, "actor_device": "cpu", "critic_device": "cpu"}


@dataclass(frozen=True)
class FirstSession:
    """A run folder as it was when the run had stopped for the first time."""

    config: dict[str, Any]
    summary: dict[str, Any]
    journals: dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def first_session(module_spreeze: Spreeze) -> FirstSession:
    assert module_spreeze.train("Toy/Endless-v0", max_updates=60, min_updates_per_step=0.5).returncode == 0
    journals = {name: module_spreeze.journal(name) for name in ("metrics", "evaluations", "events")}
    return FirstSession(module_spreeze.read("config.json"), module_spreeze.read("summary.json"), journals)


@pytest.fixture(scope="module")
def module_run(first_session: FirstSession, module_spreeze: Spreeze) -> Path:
    """A run that has stopped twice, with a checkpoint each time."""
    del first_session
    finished = module_spreeze("resume", "run", "--max-updates", 120)
    assert finished.returncode == 0, finished.stderr
    assert len(manifests(module_spreeze.run_dir / "checkpoint")) == 2
    return module_spreeze.run_dir


def test_a_run_goes_on_where_it_stopped(
    first_session: FirstSession, module_run: Path, module_spreeze: Spreeze
) -> None:
    first, second = first_session.summary, module_spreeze.read("summary.json", module_run)
    assert second["updates"] == 120
    assert second["env_steps"] > first["env_steps"]
    assert second["wall_s"] > first["wall_s"]
    assert {**module_spreeze.read("config.json"), "max_updates": 60} == first_session.config
    for name, before in first_session.journals.items():
        assert module_spreeze.journal(name)[: len(before)] == before
    metrics = module_spreeze.journal("metrics")
    for counter in ("wall_s", "env_steps", "updates", "episodes", "ratio_wait_s", "learner_wait_s", "ingest_s"):
        values = [line[counter] for line in metrics]
        assert values == sorted(values), counter
    # Updates and steps keep their ratio: neither side catches up for the other's past.
    assert second["env_steps"] <= 120 / 0.5 + 100 + 1000
    (event,) = [event for event in module_spreeze.journal("events") if event["kind"] == "resume"]
    assert "after 60 updates" in event["reason"]


@pytest.mark.parametrize(
    "settings",
    [
        SPLIT,
        pytest.param({}, marks=pytest.mark.full),
        pytest.param({"normalise_observations": True, "algo": "td3"}, marks=pytest.mark.full),
    ],
)
def test_networks_optimisers_and_replay_are_those_of_the_stop_to_the_byte(
    spreeze: Spreeze, settings: dict[str, Any]
) -> None:
    assert spreeze.train("Toy/Endless-v0", max_updates=60, checkpoint_interval_s=2, **settings).returncode == 0
    folder = spreeze.run_dir / "checkpoint"
    stopped = newest_manifest(folder)
    shutil.copytree(folder, spreeze.folder / "stopped")

    # The first one is ordered after 0.4 s, while the learner still imports torch: it holds what was brought back.
    run = spreeze.start_program("resume", "run", "--max-updates", 100_000)
    spreeze.wait_until(lambda: newest_manifest(folder)["number"] > stopped["number"], "a checkpoint", run=run)
    resumed = newest_manifest(folder)
    states = {path["name"]: load_file(folder / path["name"]) for path in resumed["states"]}
    run.process.terminate()
    assert run.finish().returncode == 130

    assert resumed["counters"]["updates"] == stopped["counters"]["updates"]
    assert len(states) == len(stopped["states"])
    for path in stopped["states"]:
        before = load_file(spreeze.folder / "stopped" / path["name"])
        after = states[path["name"].replace(f"{stopped['number']:06d}", f"{resumed['number']:06d}")]
        assert before.keys() == after.keys()
        for name, array in before.items():
            assert array.tobytes() == after[name].tobytes(), name
    rows = stopped["counters"]["replay_written"]
    assert rows > 0
    before_rows, after_rows = (
        np.fromfile(where / "replay" / "rows-000000000000000.f32", np.float32, rows * stopped["row_width"])
        for where in (spreeze.folder / "stopped", folder)
    )
    assert before_rows.tobytes() == after_rows.tobytes()


def test_a_run_that_was_killed_goes_on_from_its_last_checkpoint(spreeze: Spreeze) -> None:
    run = spreeze.start_training("Toy/Endless-v0", checkpoint_interval_s=0.2)
    wait_for_checkpoint(spreeze, run)
    spreeze.wait_for_updates(run)  # the first line of metrics comes after a second
    run.process.kill()
    run.finish()
    spreeze.wait_until(lambda: not spreeze.processes(), "the end of all processes")
    last = spreeze.journal("metrics")[-1]
    kept = newest_manifest(spreeze.run_dir / "checkpoint")["counters"]["updates"]

    finished = spreeze("resume", "run", "--max-updates", kept + 20)

    assert finished.returncode == 0, finished.stderr
    assert spreeze.read("summary.json")["updates"] == kept + 20
    assert spreeze.read("summary.json")["wall_s"] > last["wall_s"]


@pytest.mark.full
def test_any_kill_leaves_a_run_that_can_be_resumed(spreeze: Spreeze) -> None:
    """Checkpoints are under way nearly all the time; the run is killed after one, two, three, ... more of them."""
    assert spreeze.train("Toy/Endless-v0", max_updates=20, checkpoint_interval_s=0.01).returncode == 0
    updates = 20
    for kill in range(100):
        run = spreeze.start("resume", "run", "--max-updates", 10**9)
        size = folder_size(spreeze.run_dir / "checkpoint")
        changes = 1 + kill % 7
        for _ in range(changes):
            spreeze.wait_until(lambda: folder_size(spreeze.run_dir / "checkpoint") != size, "a change", run=run)  # noqa: B023
            size = folder_size(spreeze.run_dir / "checkpoint")
        run.process.kill()
        run.finish()
        spreeze.wait_until(lambda: not spreeze.processes(), "the end of all processes")
        kept = newest_manifest(spreeze.run_dir / "checkpoint")["counters"]["updates"]
        assert kept >= updates
        updates = kept
    assert spreeze("resume", "run", "--max-updates", updates + 10).returncode == 0
    assert spreeze.read("summary.json")["updates"] == updates + 10


@pytest.mark.parametrize(
    "damage", ["flipped", *(pytest.param(how, marks=pytest.mark.full) for how in ("truncated", "gone"))]
)
def test_networks_that_are_damaged_give_way_to_those_before(module_run: Path, spreeze: Spreeze, damage: str) -> None:
    shutil.copytree(module_run, spreeze.run_dir)
    folder = spreeze.run_dir / "checkpoint"
    newest, older = (json.loads(path.read_bytes().partition(b"\n")[2]) for path in manifests(folder)[::-1])
    state = folder / newest["states"][0]["name"]
    if damage == "truncated":
        state.write_bytes(state.read_bytes()[:-1])
    elif damage == "flipped":
        content = bytearray(state.read_bytes())
        content[len(content) // 2] ^= 1
        state.write_bytes(content)
    else:
        state.unlink()

    finished = spreeze("resume", "run", "--max-updates", newest["counters"]["updates"] + 10)

    assert finished.returncode == 0, finished.stderr
    assert f"checkpoint {newest['number']} cannot be used" in finished.stdout + finished.stderr
    event = [event for event in spreeze.journal("events") if event["kind"] == "resume"][-1]
    assert f"from checkpoint {older['number']} " in event["reason"]


@pytest.mark.parametrize("words", [[], pytest.param(["--without-replay"], marks=pytest.mark.full)])
def test_networks_are_kept_where_the_replay_is_damaged(module_run: Path, spreeze: Spreeze, words: list[str]) -> None:
    shutil.copytree(module_run, spreeze.run_dir)
    folder = spreeze.run_dir / "checkpoint"
    newest, older = (json.loads(path.read_bytes().partition(b"\n")[2]) for path in manifests(folder)[::-1])
    (path,) = (folder / "replay").glob("rows-*")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1  # of a row that only the newest one has
    path.write_bytes(content)
    steps = spreeze.read("summary.json")["env_steps"]

    finished = spreeze("resume", "run", "--max-updates", newest["counters"]["updates"] + 10, *words)

    assert finished.returncode == 0, finished.stderr
    assert spreeze.read("summary.json")["updates"] == newest["counters"]["updates"] + 10
    event = [event for event in spreeze.journal("events") if event["kind"] == "resume"][-1]
    assert f"from checkpoint {newest['number']} " in event["reason"]
    told = [event for event in spreeze.journal("events") if "transitions_left_out" in event]
    if words:
        assert "which are left out: --without-replay" in event["reason"]
        assert told == []
        assert spreeze.read("summary.json")["env_steps"] >= steps + 100  # the warm-up
        return
    # The first rows of the file are those of the older checkpoint, which has a checksum of them.
    lost = newest["counters"]["replay_written"] - older["counters"]["replay_written"]
    (warning,) = told
    assert (warning["kind"], warning["role"], warning["transitions_left_out"]) == ("warning", "learner", lost)
    assert f"{lost:,} transitions are damaged and left out" in finished.stdout + finished.stderr


def test_without_a_whole_checkpoint_there_is_one_clear_line(module_run: Path, spreeze: Spreeze) -> None:
    shutil.copytree(module_run, spreeze.run_dir)
    for path in (spreeze.run_dir / "checkpoint").glob("state-*"):
        path.write_bytes(b"")
    finished = spreeze("resume", "run", "--max-updates", 100_000)
    assert finished.returncode == 1
    (line,) = finished.stderr.strip().splitlines()
    assert "and there is no other" in line


@pytest.mark.full
def test_a_run_without_its_replay_collects_rows_before_it_goes_on(spreeze: Spreeze) -> None:
    limits = {"min_updates_per_step": 0.5, "max_updates_per_step": 0.5}
    first = spreeze.train("Toy/Endless-v0", max_updates=60, no_checkpoint_replay=True, **limits)
    assert first.returncode == 0
    assert not list((spreeze.run_dir / "checkpoint").glob("replay/rows-*"))
    steps = spreeze.read("summary.json")["env_steps"]
    assert spreeze("resume", "run", "--max-updates", 90).returncode == 0
    assert spreeze.read("summary.json")["env_steps"] >= steps + 100  # the warm-up
    assert spreeze.read("summary.json")["updates"] == 90


def test_sigterm_keeps_what_was_learnt(spreeze: Spreeze) -> None:
    run = spreeze.start_training("Toy/Endless-v0")  # the next checkpoint would be in minutes
    spreeze.wait_for_policy(run)
    run.process.send_signal(signal.SIGTERM)
    assert run.finish().returncode == 130
    updates = spreeze.read("summary.json")["updates"]
    assert newest_manifest(spreeze.run_dir / "checkpoint")["counters"]["updates"] == updates


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["resume", "nowhere"], "is not a run folder"),
        (["resume", "run"], "the run has reached its --max-updates 120: give it more"),
        (["resume", "run", "--max-updates", "10"], "--max-updates 10 was reached before: the run stands at 120"),
        (["resume", "run", "--batch-size", "10"], "there is no flag '--batch-size'"),
        (["resume"], "RUN is missing"),
        (["resume", "run", "--max-updates", "many"], "--max-updates must be"),
    ],
)
def test_what_cannot_be_resumed_is_refused_in_one_line(
    module_run: Path, module_spreeze: Spreeze, words: list[str], said: str
) -> None:
    before = sorted(path.read_bytes() for path in module_run.rglob("*.json*"))
    finished = module_spreeze(*words)
    assert finished.returncode == 2
    (line,) = finished.stderr.strip().splitlines()
    assert said in line
    assert sorted(path.read_bytes() for path in module_run.rglob("*.json*")) == before


@pytest.mark.full
def test_a_run_that_never_had_a_checkpoint_is_refused(spreeze: Spreeze) -> None:
    assert spreeze.train("Toy/Endless-v0", max_updates=10, checkpoint_interval_s=0).returncode == 0
    assert not (spreeze.run_dir / "checkpoint").exists()
    finished = spreeze("resume", "run", "--max-updates", 20)
    assert finished.returncode == 2
    assert "has no checkpoint to resume from" in finished.stderr


@pytest.mark.full
def test_a_run_that_goes_on_is_not_resumed(spreeze: Spreeze) -> None:
    run = spreeze.start_training("Toy/Endless-v0", checkpoint_interval_s=0.2)
    wait_for_checkpoint(spreeze, run)
    finished = spreeze("resume", "run", "--max-updates", 10**9)
    assert finished.returncode == 2
    (line,) = finished.stderr.strip().splitlines()
    assert str(run.process.pid) in line
    run.process.terminate()
    assert run.finish().returncode == 130


@pytest.mark.full
def test_a_script_resumes_what_it_has_trained_on_a_callable(spreeze: Spreeze) -> None:
    script = spreeze.folder / "script.py"
    small = "device='cpu', split='no', samplers=1, hidden=(8, 8), batch_size=16, warmup_steps=50, quiet=True"
    script.write_text(
        "import spreeze\n"
        "from toy_envs import Point\n"
        f"first = spreeze.train(Point, run_dir='run', max_updates=30, {small})\n"
        "second = spreeze.resume('run', env=Point, max_updates=60)\n"
        "print(first.updates, second.updates, second.wall_s > first.wall_s)\n"
    )
    finished = spreeze.start_script(script).finish()
    assert finished.stdout == "30 60 True\n", finished.stderr
    finished = spreeze("resume", "run", "--max-updates", 90)
    assert finished.returncode == 2
    assert "resume it from Python" in finished.stderr


def wait_for_checkpoint(spreeze: Spreeze, run: Running) -> None:
    folder = spreeze.run_dir / "checkpoint"
    spreeze.wait_until(lambda: manifests(folder), "a checkpoint", run=run)


def manifests(folder: Path) -> list[Path]:
    return sorted(folder.glob("manifest-*.json"))


def newest_manifest(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(manifests(folder)[-1].read_bytes().partition(b"\n")[2])
    return content


def folder_size(folder: Path) -> tuple[tuple[str, int], ...]:
    sizes = []
    for path in sorted(folder.rglob("*")):
        try:
            sizes.append((path.name, path.stat().st_size))
        except FileNotFoundError:
            continue  # it was deleted just now
    return tuple(sizes)
