"""A damaged replay costs the rows that are damaged, and never the networks; and a run goes on without its replay."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import spreeze
from spreeze.errors import CheckpointError
from spreeze.runs import replay_log
from spreeze.runs.checkpoint_format import Manifest, newest_checkpoints
from spreeze.runs.replay_log import path_of, verify

WARMUP = 24
SMALL: dict[str, Any] = {
    "serial": True,
    "device": "cpu",
    "tensorboard": False,
    "envs_per_sampler": 2,
    "hidden": (8,),
    "batch_size": 8,
    "warmup_steps": WARMUP,
    "eval_episodes": 1,
    "max_episode_steps": 10,
}
SPLIT = {"actor_device": "cpu", "critic_device": "cpu"}
FILE_ROWS, WIDTH = 25, 10  # of Pendulum-v1


@pytest.fixture(scope="module", autouse=True)
def _small_files() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_log, "FILE_BYTES", FILE_ROWS * 4 * WIDTH)
        yield


@pytest.fixture(scope="module", params=[{}, SPLIT], ids=["one-device", "two-devices"])
def stopped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped twice: its older checkpoint has 100 rows, its newer one 150."""
    run = tmp_path_factory.mktemp("stopped") / "run"
    spreeze.train("Pendulum-v1", **SMALL, **request.param, max_env_steps=100, run_dir=run)
    spreeze.resume(run, max_env_steps=150)
    return run


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def damage(run: Path, first_row: int, how: str) -> None:
    path = path_of(run / "checkpoint" / "replay", first_row)
    content = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(content[:-1])
    else:
        content[7] ^= 1
        path.write_bytes(content)


def newest(run: Path) -> Manifest:
    return newest_checkpoints(run / "checkpoint")[0]


def events_of(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def left_out(run: Path) -> list[int]:
    """How many rows each warning said were left out."""
    return [event["transitions_left_out"] for event in events_of(run, "warning") if "transitions_left_out" in event]


def saved_rows(run: Path) -> list[tuple[int, int]]:
    """The files that the newest checkpoint has, which are intact."""
    manifest = newest(run)
    verify(run / "checkpoint" / "replay", manifest.extents, manifest.row_width)
    return [(extent.first_row, extent.rows) for extent in manifest.extents]


def files(*first_rows: int) -> list[tuple[int, int]]:
    return [(first_row, FILE_ROWS) for first_row in first_rows]


@pytest.mark.parametrize("how", ["flipped", "truncated", "missing"])
def test_the_rows_of_a_damaged_file_are_left_out_and_told(
    run: Path, how: str, capfd: pytest.CaptureFixture[str]
) -> None:
    before = newest(run)
    assert [extent.first_row for extent in before.extents] == [0, 25, 50, 75, 100, 125]
    damage(run, 50, how)

    result = spreeze.resume(run, max_env_steps=200)

    assert (result.env_steps, result.updates) == (200, before.counters["updates"] + 50)
    (warning,) = [event for event in events_of(run, "warning") if "transitions" in event["reason"]]
    assert (warning["transitions_left_out"], warning["checkpoint"]) == (25, before.number)
    told = f"checkpoint {before.number}: 25 transitions are damaged and left out, the other 125 are used"
    assert told in warning["reason"]
    assert told in "".join(capfd.readouterr())
    assert f"from checkpoint {before.number} " in events_of(run, "resume")[-1]["reason"]
    assert saved_rows(run) == files(0, 25, 75, 100, 125, 150, 175)
    # It is told once: checkpoints from now on do without.
    assert spreeze.resume(run, max_env_steps=210).env_steps == 210
    assert left_out(run) == [25]


def test_networks_that_are_newer_are_worth_more_than_rows(run: Path) -> None:
    before = newest(run)
    damage(run, 125, "flipped")  # the older checkpoint is whole
    spreeze.resume(run, max_env_steps=200)
    assert f"from checkpoint {before.number} " in events_of(run, "resume")[-1]["reason"]
    assert left_out(run) == [25]
    assert saved_rows(run) == files(0, 25, 50, 75, 100, 150, 175)


def test_where_the_networks_are_damaged_the_checkpoint_before_is_used_with_what_is_intact_of_its_rows(
    run: Path,
) -> None:
    after, before = newest_checkpoints(run / "checkpoint")
    damage(run, 50, "truncated")
    (run / "checkpoint" / after.states[0].name).write_bytes(b"")
    result = spreeze.resume(run, max_env_steps=200)
    assert result.updates == before.counters["updates"] + 100
    assert f"from checkpoint {before.number} " in events_of(run, "resume")[-1]["reason"]
    assert any(
        event["reason"].startswith(f"checkpoint {after.number} cannot be used, the one before is tried")
        for event in events_of(run, "warning")
    )
    assert left_out(run) == [25]


def test_without_any_intact_networks_the_run_is_not_resumed(run: Path) -> None:
    for state in (run / "checkpoint").glob("state-*"):
        state.write_bytes(b"")
    with pytest.raises(CheckpointError, match="and there is no other"):
        spreeze.resume(run, max_env_steps=200, without_replay=True)


def test_where_all_rows_are_damaged_new_ones_are_collected_first(run: Path) -> None:
    before = newest(run)
    for extent in before.extents:
        damage(run, extent.first_row, "flipped")
    result = spreeze.resume(run, max_updates=int(before.counters["updates"]) + 1)
    assert result.env_steps == 150 + WARMUP
    assert left_out(run) == [150]
    assert "none is left, and new ones are collected first" in events_of(run, "warning")[-1]["reason"]
    assert saved_rows(run) == [(150, WARMUP)]


def test_a_run_goes_on_without_its_replay_where_that_is_asked_for(run: Path) -> None:
    before = newest(run)
    damage(run, 50, "missing")
    result = spreeze.resume(run, max_updates=int(before.counters["updates"]) + 1, without_replay=True)
    assert result.env_steps == 150 + WARMUP
    assert left_out(run) == []  # nothing was looked at
    assert events_of(run, "resume")[-1]["reason"].endswith("which are left out: --without-replay")
    assert saved_rows(run) == [(150, WARMUP)]
    # What was collected since is a replay like any other.
    result = spreeze.resume(run, max_env_steps=200)
    assert (result.env_steps, left_out(run)) == (200, [])
    assert sum(rows for _, rows in saved_rows(run)) == 50


def test_of_few_rows_that_are_left_as_many_are_collected_as_lack_for_a_warm_up(run: Path) -> None:
    before = newest(run)
    for extent in before.extents[:-1]:
        damage(run, extent.first_row, "flipped")
    # 25 are left, one more than the warm-up has.
    assert spreeze.resume(run, max_updates=int(before.counters["updates"]) + 1).env_steps == 152
