"""Figures of a run reach TensorBoard and Weights & Biases, and neither can end it."""

from __future__ import annotations

import dataclasses
import json
import shutil
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spreeze.config import Config
from spreeze.host import write_failures
from spreeze.runs.records import Evaluation, Measurement
from spreeze.views.trackers import TensorBoard, Trackers, make_trackers, scalars_of_evaluation, scalars_of_measurement

if TYPE_CHECKING:
    from conftest import FullDisk, Spreeze

KNOWN_NAMES = {
    *("rollout/ep_rew_mean", "rollout/episodes", "time/fps", "time/updates_per_second"),
    *("time/update_frames_per_second", "time/total_timesteps", "time/time_elapsed", "train/critic_loss"),
    *("train/actor_loss", "train/ent_coef", "train/ent_coef_loss", "train/q_mean", "train/entropy"),
    *("train/n_updates", "system/cpu_percent", "system/rss_bytes", "system/policy_lag_s", "system/batch_size"),
    *("system/samplers", "system/ring_fill", "system/cores_sampler", "system/cores_learner"),
    *("eval/mean_reward", "eval/mean_ep_length"),
}


def read_back(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return events


def measurement(**fields: Any) -> Measurement:
    blank: dict[str, Any] = {field.name: 1 for field in dataclasses.fields(Measurement)}
    return Measurement(**{**blank, "cpu_cores": (50.0,), "cpu_by_role": {"sampler": 0.5}, "figures": {}, **fields})


def evaluation(**fields: Any) -> Evaluation:
    plain = Evaluation(12.0, 3000, 40, 5, -150.0, 10.0, (-140.0, -160.0), (200, 100))
    return dataclasses.replace(plain, **fields)


# --- names -------------------------------------------------------------------------------------------------------


def test_figures_have_the_names_that_people_know() -> None:
    measured = scalars_of_measurement(
        measurement(sampling_hz=5000.0, updates=7, figures={"temperature": 0.25, "surprise": 2.0}, num_samplers=3)
    )
    assert measured["time/fps"] == 5000.0
    assert measured["train/n_updates"] == 7
    assert measured["train/ent_coef"] == 0.25
    assert measured["train/surprise"] == 2.0
    assert measured["system/samplers"] == 3
    assert measured["system/cores_sampler"] == 0.5
    assert scalars_of_evaluation(evaluation()) == {"eval/mean_reward": -150.0, "eval/mean_ep_length": 150.0}


def test_what_is_not_there_is_not_logged() -> None:
    scalars = scalars_of_measurement(
        measurement(train_return=None, gpu_percent=None, figures={"critic_loss": float("nan")})
    )
    assert not {"rollout/ep_rew_mean", "system/gpu_percent", "train/critic_loss"} & scalars.keys()
    assert scalars_of_evaluation(evaluation(mean_return=float("nan"), lengths=())) == {}


# --- TensorBoard -------------------------------------------------------------------------------------------------


def test_steps_are_environment_steps_and_times_are_true(tmp_path: Path) -> None:
    started_at, now = time.monotonic() - 100.0, time.time()
    trackers = Trackers([TensorBoard(tmp_path / "tensorboard", started_at)])
    assert trackers.measured(measurement(env_steps=4000, wall_s=90.0)) == []
    assert trackers.evaluated(evaluation(env_steps=3000, wall_s=60.0)) == []
    assert trackers.close(has_failed=False) == []
    events = read_back(tmp_path / "tensorboard")
    (measured,), (evaluated,) = events.Scalars("time/fps"), events.Scalars("eval/mean_reward")
    assert (measured.step, evaluated.step, evaluated.value) == (4000, 3000, -150.0)
    assert measured.wall_time - evaluated.wall_time == pytest.approx(30.0)
    assert measured.wall_time == pytest.approx(now - 10.0, abs=5.0)


def test_nothing_is_made_before_there_are_figures(tmp_path: Path) -> None:
    trackers = make_trackers(Config("Pendulum-v1"), tmp_path, time.monotonic())
    assert trackers.close(has_failed=True) == []
    assert list(tmp_path.iterdir()) == []


def test_trackers_may_be_left_out(tmp_path: Path) -> None:
    trackers = make_trackers(Config("Pendulum-v1").replace(tensorboard=False), tmp_path, time.monotonic())
    assert trackers.measured(measurement()) == []
    assert list(tmp_path.iterdir()) == []


def test_file_in_the_way_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").write_text("in the way")
    trackers = make_trackers(Config("Pendulum-v1"), tmp_path, time.monotonic())
    (warning,) = trackers.measured(measurement())
    said = "the figures for TensorBoard cannot be written (tensorboard is a file, not a folder): "
    assert warning == said + "they are lost, the run continues"
    assert trackers.measured(measurement()) == trackers.evaluated(evaluation()) == trackers.close(False) == []


def test_figures_come_back_when_the_disk_does(
    tmp_path: Path, full_disk: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    trackers = make_trackers(Config("Pendulum-v1"), tmp_path, time.monotonic())
    assert trackers.measured(measurement(env_steps=1)) == []
    (file,) = (tmp_path / "tensorboard").iterdir()
    with full_disk(file.stat().st_size + 100):  # a part of a record fits
        assert len(trackers.measured(measurement(env_steps=2))) == 1
        assert trackers.measured(measurement(env_steps=3)) == []
    monkeypatch.setattr(write_failures, "QUIET_S", 0.0)
    assert trackers.measured(measurement(env_steps=4)) == ["the figures for TensorBoard can be written again"]
    shutil.rmtree(tmp_path / "tensorboard")
    assert trackers.measured(measurement(env_steps=5)) == []
    assert [one.step for one in read_back(tmp_path / "tensorboard").Scalars("time/fps")] == [5]
    assert trackers.measured(measurement(env_steps=6)) == trackers.close(False) == []
    assert [one.step for one in read_back(tmp_path / "tensorboard").Scalars("time/fps")] == [5, 6]


def test_a_full_disk_leaves_whole_records(tmp_path: Path, full_disk: FullDisk) -> None:
    trackers = make_trackers(Config("Pendulum-v1"), tmp_path, time.monotonic())
    with full_disk(10):
        assert len(trackers.measured(measurement(env_steps=1))) == 1
    assert list((tmp_path / "tensorboard").iterdir()) == []
    trackers.measured(measurement(env_steps=2))
    (file,) = (tmp_path / "tensorboard").iterdir()
    with full_disk(file.stat().st_size + 100):
        trackers.measured(measurement(env_steps=3))
    trackers.measured(measurement(env_steps=4))
    trackers.close(False)
    assert [one.step for one in read_back(tmp_path / "tensorboard").Scalars("time/fps")] == [2, 4]


class Failing:
    """A tracker that fails where it is told to."""

    name = "Failing"

    def __init__(self, fails_to: str) -> None:
        self._fails_to = fails_to

    def log(self, scalars: Mapping[str, float], env_steps: int, wall_s: float) -> None:
        del scalars, env_steps, wall_s
        if self._fails_to == "log":
            raise ValueError("two\nlines")

    def close(self, has_failed: bool, grace_s: float) -> None:
        del has_failed, grace_s
        if self._fails_to == "close":
            raise TimeoutError


@pytest.mark.parametrize("fails_to", ["log", "close"])
def test_tracker_that_fails_does_not_take_the_others_with_it(tmp_path: Path, fails_to: str) -> None:
    trackers = Trackers([Failing(fails_to), TensorBoard(tmp_path / "tensorboard", time.monotonic())])
    warnings = [
        *trackers.measured(measurement(env_steps=1)),
        *trackers.measured(measurement(env_steps=2)),
        *trackers.close(False),
    ]
    said = {"log": "two lines", "close": "TimeoutError"}[fails_to]
    assert warnings == [f"Failing gets no more figures, the run continues: {said}"]
    assert [one.step for one in read_back(tmp_path / "tensorboard").Scalars("time/fps")] == [1, 2]


class Slow:
    """Has not uploaded everything when the time is up."""

    name = "Slow"

    def log(self, scalars: Mapping[str, float], env_steps: int, wall_s: float) -> None: ...

    def close(self, has_failed: bool, grace_s: float) -> None:
        del has_failed
        raise TimeoutError(f"{grace_s:.0f} s")


def test_nobody_waits_for_an_upload_after_an_interrupt() -> None:
    (ended,), (interrupted,) = Trackers([Slow()]).close(False), Trackers([Slow()]).close(False, is_interrupted=True)
    assert (ended.rpartition(": ")[2], interrupted.rpartition(": ")[2]) == ("30 s", "2 s")


# --- real runs ---------------------------------------------------------------------------------------------------


PACED: dict[str, Any] = {"env_kwargs": {"step_s": 0.002}, "max_updates_per_step": 0.5, "max_updates": 400}


def test_run_leaves_the_figures_of_its_journals(spreeze: Spreeze) -> None:
    finished = spreeze.train("Toy/Point-v0", **PACED)
    assert finished.returncode == 0, finished.stderr
    events = read_back(spreeze.run_dir / "tensorboard")
    assert set(events.Tags()["scalars"]) >= KNOWN_NAMES
    metrics, evaluations = spreeze.journal("metrics"), spreeze.journal("evaluations")
    assert [one.step for one in events.Scalars("time/fps")] == [line["env_steps"] for line in metrics]
    assert [one.value for one in events.Scalars("time/fps")] == pytest.approx(
        [line["sampling_hz"] for line in metrics]
    )
    assert [one.step for one in events.Scalars("eval/mean_reward")] == [line["env_steps"] for line in evaluations]
    returns = [line["mean_return"] for line in evaluations]
    assert [one.value for one in events.Scalars("eval/mean_reward")] == pytest.approx(returns)
    times = [one.wall_time for one in events.Scalars("time/fps")]
    assert times[-1] - times[0] == pytest.approx(metrics[-1]["wall_s"] - metrics[0]["wall_s"], abs=1e-3)


def test_run_that_was_killed_leaves_what_it_had(spreeze: Spreeze) -> None:
    run = spreeze.start_training("Toy/Point-v0", env_kwargs={"step_s": 0.002})
    # The first of two lines is in the event file too, whenever the kill comes.
    spreeze.wait_until(lambda: len(spreeze.journal("metrics")) >= 2, "two lines of metrics.jsonl", run=run)
    run.process.kill()
    run.finish()
    metrics = spreeze.journal("metrics")
    steps = [one.step for one in read_back(spreeze.run_dir / "tensorboard").Scalars("time/fps")]
    assert steps in ([line["env_steps"] for line in metrics], [line["env_steps"] for line in metrics[:-1]])


# Its constructor, which is called before the first figures, puts a full disk where they are to go.
FULL_DISK = """
from pathlib import Path
import gymnasium
from toy_envs import Point

class Spoiler(Point):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        folder = Path("run/tensorboard")
        if folder.parent.exists() and not folder.exists():
            folder.symlink_to("/dev/full")

gymnasium.register("Toy/Spoiler-v0", Spoiler, max_episode_steps=20)
"""


def test_run_goes_on_without_a_place_for_event_files(spreeze: Spreeze) -> None:
    (spreeze.folder / "spoiler.py").write_text(FULL_DISK)
    finished = spreeze.train("Toy/Spoiler-v0", **PACED, env_module=("toy_envs", "spoiler"))
    assert finished.returncode == 0, finished.stderr
    warnings = [event["reason"] for event in spreeze.journal("events") if event["kind"] == "warning"]
    assert len(warnings) == 1
    assert warnings[0].startswith(
        "the figures for TensorBoard cannot be written (tensorboard is a symbolic link, not a folder): "
    )
    assert f"warning: {warnings[0]}" in finished.stdout
    assert spreeze.read("summary.json")["updates"] == 400


def test_no_event_files_where_none_are_wanted(spreeze: Spreeze) -> None:
    finished = spreeze.train("Toy/Point-v0", max_updates=50, no_tensorboard=True)
    assert finished.returncode == 0, finished.stderr
    assert not (spreeze.run_dir / "tensorboard").exists()


# --- Weights & Biases --------------------------------------------------------------------------------------------


def test_without_wandb_the_line_that_installs_it(spreeze: Spreeze) -> None:
    words = ("train", "Toy/Point-v0", *spreeze.small(), "--wandb")
    finished = spreeze.start(*words, environment=spreeze.without("wandb")).finish()
    assert finished.returncode == 2
    said = "spreeze: --wandb needs Weights & Biases, which is not installed: pip install wandb\n"
    assert finished.stderr == said
    assert not spreeze.run_dir.exists()


def test_without_a_key_it_is_refused_before_anything_starts(spreeze: Spreeze) -> None:
    pytest.importorskip("wandb")
    environment = {"WANDB_MODE": "online", "WANDB_API_KEY": "", "HOME": str(spreeze.folder), "NETRC": "none"}
    words = ("train", "Toy/Point-v0", *spreeze.small(), "--wandb")
    finished = spreeze.start(*words, environment=environment).finish()
    assert finished.returncode == 2
    (line,) = finished.stderr.splitlines()
    assert "--wandb: No API key configured" in line
    assert "WANDB_MODE=offline" in line
    assert not spreeze.run_dir.exists()


def test_wandb_gets_the_figures_offline(spreeze: Spreeze) -> None:
    pytest.importorskip("wandb")
    environment = {"WANDB_MODE": "offline", "HOME": str(spreeze.folder)}
    words = ("train", "Toy/Point-v0", *spreeze.small(**PACED), "--wandb")
    finished = spreeze.start(*words, environment=environment).finish()
    assert (finished.returncode, finished.stderr) == (0, "")
    assert not [event for event in spreeze.journal("events") if event["kind"] == "warning"]

    (path,) = spreeze.run_dir.glob("wandb/offline-run-*/run-*.wandb")
    records = list(wandb_records(path))
    (run,) = [record.run for record in records if record.HasField("run")]
    assert (run.project, run.display_name) == ("spreeze", "run")
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert config["env"] == "Toy/Point-v0"
    assert config["batch_size"] == 32
    lines = [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.HasField("history")
    ]
    assert {name for line in lines for name in line} >= KNOWN_NAMES
    metrics, evaluations = spreeze.journal("metrics"), spreeze.journal("evaluations")
    for name, field, journal in (
        ("time/fps", "sampling_hz", metrics),
        ("eval/mean_reward", "mean_return", evaluations),
    ):
        logged = [(line["time/total_timesteps"], line[name]) for line in lines if name in line]
        assert logged == [(line["env_steps"], pytest.approx(line[field])) for line in journal]
    (exit_record,) = [record.exit for record in records if record.HasField("exit")]
    assert exit_record.exit_code == 0


def wandb_records(path: Path) -> Iterator[Any]:
    """Read a .wandb file: a header, and blocks of 32 KB of records, as LevelDB's log has them."""
    from wandb.proto import wandb_internal_pb2

    data, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # no room for a record's header before the next block
            at += 32768 - at % 32768
        _, length, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def test_supervisor_imports_neither_library_by_itself() -> None:
    import subprocess

    program = "import sys, spreeze.supervision.supervisor; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout.decode().split()
    assert "spreeze.views.trackers" in loaded
    assert not {"tensorboard", "wandb", "google.protobuf"} & set(loaded)
