"""`spreeze bench throughput`: its figures fit each other, wrong inputs are refused, and nothing is left behind."""

from __future__ import annotations

import dataclasses
import json
import signal
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from spreeze.channels.weights import version_path, write_weights
from spreeze.commands.bench.throughput import TrainingFigures, _figures, _WindowDisplay
from spreeze.config import Config
from spreeze.host.hardware import usable_cores
from spreeze.runs.records import Measurement

if TYPE_CHECKING:
    from conftest import Spreeze

SMALL = ("--samplers", 1, "--envs-per-sampler", 4, "--batch-size", 32, "--device", "cpu")


# --- figures from measurements ----------------------------------------------------------------------------------


def measurement(**fields: Any) -> Measurement:
    blank = {field.name: 0 for field in dataclasses.fields(Measurement)}
    return Measurement(**{**blank, "gpu_percent": None, "num_samplers": 2, "batch_size": 64, **fields})


def figures_of(*measurements: Measurement) -> TrainingFigures:
    config = Config("Pendulum-v1").replace(
        envs_per_sampler=8, device="cpu", learner_threads=1, min_updates_per_step=0.5
    )
    display = _WindowDisplay(len(measurements) - 1, started_at=0.0)
    display.first_update_s = 1.5
    display.measurements += measurements
    return _figures(config, display)


def test_rates_are_medians_and_means_over_the_window_without_its_beginning() -> None:
    figures = figures_of(
        measurement(wall_s=10.0, sampling_hz=9999.0, update_hz=9999.0, update_frame_hz=9999.0, cpu_percent=99.0),
        measurement(wall_s=11.0, sampling_hz=100.0, update_hz=10.0, update_frame_hz=640.0, cpu_percent=20.0),
        measurement(wall_s=12.0, sampling_hz=200.0, update_hz=20.0, update_frame_hz=1280.0, cpu_percent=40.0),
        measurement(wall_s=14.0, sampling_hz=600.0, update_hz=60.0, update_frame_hz=3840.0, cpu_percent=50.0),
    )

    assert figures.window_s == 4.0
    assert (figures.sampling_hz, figures.update_hz, figures.update_frame_hz) == (200.0, 20.0, 1280.0)
    # (100 * 1 s + 200 * 1 s + 600 * 2 s) / 4 s
    assert figures.sampling_hz_mean == pytest.approx(375.0)
    assert figures.update_hz_mean == pytest.approx(37.5)
    assert figures.update_frame_hz_mean == pytest.approx(2400.0)
    assert figures.cpu_percent == pytest.approx(40.0)
    assert figures.gpu_percent is None
    assert len(figures.measurements) == 4


def test_shares_are_of_the_time_of_those_who_spent_it() -> None:
    figures = figures_of(
        measurement(
            wall_s=10.0, ring_wait_s=3.0, ratio_wait_s=5.0, learner_wait_s=7.0, ingest_s=1.0, gpu_percent=90.0
        ),
        measurement(
            wall_s=15.0, ring_wait_s=3.5, ratio_wait_s=9.0, learner_wait_s=7.5, ingest_s=1.2, gpu_percent=30.0
        ),
        measurement(wall_s=20.0, ring_wait_s=4.0, ratio_wait_s=15.0, learner_wait_s=8.0, ingest_s=3.0),
    )

    assert figures.ring_wait_share == pytest.approx(1.0 / 20)  # of two samplers for ten seconds
    assert figures.ratio_wait_share == pytest.approx(10.0 / 20)
    assert figures.learner_wait_share == pytest.approx(1.0 / 10)
    assert figures.ingest_share == pytest.approx(2.0 / 10)
    assert figures.publish_share == figures.report_share == 0
    assert figures.gpu_percent == 30.0  # a reading that failed does not count as idle
    assert (figures.samplers, figures.batch_size, figures.first_update_s) == (2, 64, 1.5)


# --- the window -------------------------------------------------------------------------------------------------


def test_window_begins_after_the_first_policy_has_settled_and_ends_the_run_when_full(tmp_path: Path) -> None:
    display = _WindowDisplay(2, started_at=time.monotonic() - 4.25)
    display.begin(Config("Pendulum-v1"), tmp_path, 0)
    (tmp_path / "weights").mkdir()
    display.show(measurement(wall_s=4.0, updates=0))
    write_weights(version_path(tmp_path / "weights", 1), {}, {"published_at": str(time.monotonic())})
    for wall_s in (5.0, 6.0, 7.0, 8.0):
        display.show(measurement(wall_s=wall_s, updates=1))
    assert display.first_update_s == pytest.approx(4.25, abs=0.5)  # the file's time, not the first line's
    assert display.first_update_s != 5.0
    assert not display.is_full

    with pytest.raises(KeyboardInterrupt):  # what SIGINT is outside of a run
        display.show(measurement(wall_s=9.0, updates=1))

    assert display.is_full
    assert [line.wall_s for line in display.measurements] == [7.0, 8.0, 9.0]


def test_without_the_first_policy_the_first_line_with_updates_counts(tmp_path: Path) -> None:
    display = _WindowDisplay(2, started_at=0.0)
    display.begin(Config("Pendulum-v1"), tmp_path, 0)

    display.show(measurement(wall_s=3.0, updates=7))

    assert display.first_update_s == 3.0


# --- the command ------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_samplers_of_the_training_step_what_is_asked_for(spreeze: Spreeze) -> None:
    pytest.importorskip("envpool", reason="no wheel for this Python")
    words = ("Pendulum-v1", "--backend", "envpool", "--seconds", 1, "--json", "figures.json", *SMALL)
    finished = spreeze("bench", "throughput", *words)

    assert finished.returncode == 0, finished.stderr
    assert "4 environments of EnvPool, batch 32" in finished.stdout
    training = json.loads((spreeze.folder / "figures.json").read_text())["training"]
    assert training["backend"] == "envpool"
    assert training["sampling_hz"] > 0


def test_figures_fit_each_other(spreeze: Spreeze) -> None:
    # The training's window is of whole seconds.
    finished = spreeze("bench", "throughput", "Pendulum-v1", "--seconds", 1.1, "--json", "figures.json", *SMALL)

    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    figures = json.loads((spreeze.folder / "figures.json").read_text())
    training, window = figures["training"], figures["training"]["measurements"]
    assert (figures["env"], figures["seconds"], figures["cores"]) == ("Pendulum-v1", 1.1, usable_cores())
    assert [training[name] for name in ("samplers", "envs_per_sampler", "batch_size", "device")] == [1, 4, 32, "cpu"]
    assert training["backend"] == "gymnasium"

    assert len(figures["raw_hz_each"]) == figures["cores"]
    assert min(figures["raw_hz_each"]) > 0
    assert figures["raw_hz"] == pytest.approx(sum(figures["raw_hz_each"]))
    assert figures["learner_alone_hz"] > 0

    assert len(window) == 3  # two seconds, and where they begin
    assert 0 < training["first_update_s"] < window[0]["wall_s"]
    assert training["window_s"] == pytest.approx(window[-1]["wall_s"] - window[0]["wall_s"], abs=0.001)
    for name in ("sampling_hz", "update_hz", "update_frame_hz"):
        assert training[name] == statistics.median(line[name] for line in window[1:])
        assert training[name] > 0
        assert training[f"{name}_mean"] > 0
    updates = window[-1]["updates"] - window[0]["updates"]
    assert training["update_hz_mean"] * training["window_s"] == pytest.approx(updates, rel=0.02)
    assert training["update_frame_hz"] == pytest.approx(32 * training["update_hz"], rel=0.02)

    assert figures["ratio_to_raw"] == pytest.approx(training["sampling_hz"] / figures["raw_hz"])
    assert figures["ratio_to_used_cores"] == pytest.approx(figures["ratio_to_raw"] * figures["cores"])
    assert figures["ratio_to_learner_alone"] == pytest.approx(training["update_hz"] / figures["learner_alone_hz"])
    for name in ("ring_wait", "ratio_wait", "learner_wait", "ingest", "publish", "report"):
        assert 0 <= training[f"{name}_share"] <= 1
    for label in ("sampling", "updates", "bare loops", "learner alone", "first update"):
        assert any(line.startswith(label) for line in finished.stdout.splitlines()), finished.stdout
    assert [path.name for path in spreeze.folder.iterdir()] == ["figures.json"]


def test_training_that_fails_names_its_process(spreeze: Spreeze) -> None:
    finished = spreeze("bench", "throughput", "toy_envs:Toy/StepRaises-v0", "--seconds", 1, *SMALL)

    assert finished.returncode == 1
    assert finished.stderr.splitlines()[-1].startswith("spreeze: sampler 0 failed: ZeroDivisionError")
    assert finished.stdout == ""


@pytest.mark.parametrize("busy_with", ["spreeze.supervision.worker_main", "spreeze.commands.bench.raw_loop"])
def test_interrupt_ends_what_is_under_way(busy_with: str, spreeze: Spreeze) -> None:
    def is_busy() -> bool:
        return any(busy_with in command_of(process) for process in spreeze.processes())

    running = spreeze.start("bench", "throughput", "Pendulum-v1", "--seconds", 1, "--json", "figures.json", *SMALL)
    spreeze.wait_until(is_busy, busy_with, run=running)
    running.process.send_signal(signal.SIGINT)

    assert running.finish().returncode == 130
    assert list(spreeze.folder.iterdir()) == []


WRONG = [
    ("unknown environment", ("Pendulm-v1",), ("Pendulm-v1", "Pendulum-v1")),
    ("no environment", (), ("ENV", "spreeze bench throughput --help")),
    ("no time", ("Pendulum-v1", "--seconds", "0"), ("--seconds", "above 0")),
    ("not a number", ("Pendulum-v1", "--seconds", "nan"), ("--seconds", "nan")),
    ("no samplers", ("Pendulum-v1", "--samplers", "0"), ("--samplers 0", "--cluster")),
    ("word for a number", ("Pendulum-v1", "--batch-size", "many"), ("--batch-size", "many")),
    ("unknown device", ("Pendulum-v1", "--device", "gpu"), ("--device", "cuda", "cpu")),
    ("negative ratio", ("Pendulum-v1", "--min-updates-per-step", "-1"), ("--min-updates-per-step",)),
    ("unknown flag", ("Pendulum-v1", "--second", "2"), ("--second", "did you mean --seconds?")),
    ("missing folder", ("Pendulum-v1", "--json", "none/figures.json"), ("--json", "none")),
]


@pytest.mark.parametrize(("words", "says"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_wrong_input_is_refused_in_one_line(words: tuple[str, ...], says: tuple[str, ...], spreeze: Spreeze) -> None:
    finished = spreeze("bench", "throughput", *words)

    assert finished.returncode == 2, finished.stderr
    assert len(finished.stderr.splitlines()) == 1, finished.stderr
    for part in says:
        assert part in finished.stderr
    assert finished.stdout == ""
    assert list(spreeze.folder.iterdir()) == []


def command_of(process: psutil.Process) -> list[str]:
    try:
        command: list[str] = process.cmdline()
    except psutil.NoSuchProcess:
        command = []  # it ended since the list was made
    return command
