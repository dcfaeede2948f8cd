"""Run folders of version 0.1 still load, evaluate, export, plot and resume: `tests/fixtures/README.md` lists them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors import safe_open

import spreeze as package
from spreeze.config import Config
from spreeze.policy.actor import DeterministicActor, GaussianActor
from spreeze.runs.checkpoint_format import newest_checkpoints
from spreeze.runs.journal_reader import RunReader
from spreeze.runs.replay_log import read_rows
from spreeze.runs.run_folder import read_run_config

if TYPE_CHECKING:
    from conftest import Spreeze

FIXTURES = Path(__file__).parent.parent / "fixtures" / "runs-0.1"
ACTORS: dict[str, type] = {
    "sac-pendulum": GaussianActor,
    "td3-pendulum": DeterministicActor,
    "ddpg-split-pendulum": DeterministicActor,
}
OLD_ENV_STEPS = 2000
# Few enough that the replay of 1,500 rows still holds some of the first session's at the end of the second.
NEW_ENV_STEPS = 3000
OBSERVATION = np.array([1.0, 0.0, 0.5], np.float32)


@pytest.fixture(params=ACTORS)
def old_run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return copy_of(request.param, tmp_path)


def copy_of(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / name, folder / name))


def stored_rows(run: Path) -> dict[int, bytes]:
    """Return the replay rows of the newest checkpoint by their number."""
    newest = newest_checkpoints(run / "checkpoint")[0]
    blocks = read_rows(run / "checkpoint" / "replay", newest.extents, newest.row_width)
    return {first + i: row.tobytes() for first, rows in blocks for i, row in enumerate(rows)}


def newest_counters(run: Path) -> dict[str, float]:
    return dict(newest_checkpoints(run / "checkpoint")[0].counters)


def metadata_of(file: Path) -> dict[str, str]:
    with safe_open(file, "numpy") as weights:
        return dict(weights.metadata())


def test_the_policy_acts_and_its_kind_is_recognised(old_run: Path) -> None:
    assert "policy" not in metadata_of(old_run / "best" / "policy.safetensors")
    policy = package.load_policy(old_run)
    assert isinstance(policy.actor(1), ACTORS[old_run.name])
    action = policy(OBSERVATION)
    assert action.shape == (1,)
    assert np.isfinite(action).all()


def test_the_config_is_read(old_run: Path) -> None:
    config = read_run_config(old_run)
    assert (config.env, config.algo) == ("Pendulum-v1", old_run.name.partition("-")[0])
    assert config.learning.hidden == (16, 16)
    assert config.learning.is_split is (old_run.name != "sac-pendulum")
    asked = Config.from_flat(newest_checkpoints(old_run / "checkpoint")[0].progress["asked"])
    assert (asked.learning.batch_size, asked.learning.tau) == (32, "auto")


def test_the_dashboard_reads_it(old_run: Path) -> None:
    reader = RunReader(old_run)
    reader.refresh()
    assert (reader.state, reader.failure, reader.damaged_lines) == ("finished", None, 0)
    assert reader.config["env"] == "Pendulum-v1"
    assert reader.summary["env_steps"] == OLD_ENV_STEPS
    assert len(reader.evaluations.series("env_steps", "mean_return")) == 1
    assert len(reader.metrics) == 1
    assert any(event["kind"] == "checkpoint" for event in reader.events.all())


def test_it_is_evaluated_and_exported(old_run: Path, spreeze: Spreeze) -> None:
    evaluated = spreeze("evaluate", old_run.name, "--episodes", 1, "--json", "scores.json")
    assert evaluated.returncode == 0, evaluated.stderr
    assert len(json.loads((spreeze.folder / "scores.json").read_text())["returns"]) == 1
    exported = spreeze("export", old_run.name, "--out", "policy.safetensors")
    assert exported.returncode == 0, exported.stderr
    alone, of_run = package.load_policy(spreeze.folder / "policy.safetensors"), package.load_policy(old_run)
    np.testing.assert_array_equal(alone(OBSERVATION), of_run(OBSERVATION))


def test_they_are_plotted(tmp_path: Path, spreeze: Spreeze) -> None:
    for name in ACTORS:
        copy_of(name, tmp_path)
    plotted = spreeze("plot", *ACTORS, "--out", "curves.svg")
    assert plotted.returncode == 0, plotted.stderr
    for algorithm in ("sac", "td3", "ddpg"):
        assert algorithm in plotted.stdout
    assert (spreeze.folder / "curves.svg").stat().st_size > 0


def test_it_is_resumed_where_it_stopped(old_run: Path, spreeze: Spreeze) -> None:
    before = spreeze.read("summary.json", old_run)
    rows_before, counters_before = stored_rows(old_run), newest_counters(old_run)
    journals = {name: spreeze.journal(name, old_run) for name in ("metrics", "evaluations", "events")}

    finished = spreeze("resume", old_run.name, "--max-env-steps", NEW_ENV_STEPS, "--quiet")

    assert finished.returncode == 0, finished.stderr
    after = spreeze.read("summary.json", old_run)
    assert (after["stop_reason"], after["env_steps"]) == ("max_env_steps", NEW_ENV_STEPS)
    assert after["updates"] > before["updates"]
    assert after["wall_s"] > before["wall_s"]
    assert after["best_return"] >= before["best_return"]
    for name, lines in journals.items():
        assert spreeze.journal(name, old_run)[: len(lines)] == lines
    (event,) = [event for event in spreeze.journal("events", old_run) if event["kind"] == "resume"]
    assert event["session"] == 2
    assert f"after {before['updates']} updates" in event["reason"]
    check_replay(old_run, rows_before)
    # From here on it is known what it was trained on.
    environment = newest_checkpoints(old_run / "checkpoint")[0].progress["environment"]
    assert (environment["id"], environment["action"]["high"]) == ("Pendulum-v1", 2.0)
    counters = newest_counters(old_run)
    assert counters.keys() >= counters_before.keys()
    assert all(counters[name] >= count for name, count in counters_before.items())
    published = metadata_of(max((old_run / "weights").glob("policy-*.safetensors")))
    assert int(published["version"]) > 2  # the first session published two
    assert published["policy"] == ("gaussian" if published["algo"] == "sac" else "deterministic")


def check_replay(run: Path, rows_before: dict[int, bytes]) -> None:
    """The replay holds the newest rows of both sessions, and those of the first are unchanged."""
    rows = stored_rows(run)
    assert max(rows) == NEW_ENV_STEPS - 1
    in_both = rows.keys() & rows_before.keys()
    assert in_both >= set(range(NEW_ENV_STEPS - 1500, OLD_ENV_STEPS))
    assert all(rows[number] == rows_before[number] for number in in_both)
