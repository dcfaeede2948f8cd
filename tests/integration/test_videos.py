"""Videos of a run: of its best policy at the end, of evaluations on the way, and never at its cost."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

if TYPE_CHECKING:
    from conftest import Spreeze

EPISODE_STEPS = 20
FILMED = {"no_video": None, "max_updates": 200}
# Recorders have little priority: what runs while they are waited for has to leave them the cores.
UNHURRIED = {"env_kwargs": {"step_s": 0.001}, "min_updates_per_step": 0, "max_updates_per_step": 0.2}


def decode(path: Path) -> tuple[list[NDArray[np.uint8]], float, str, str]:
    """Return a video's pictures, its pictures a second, its codec and its format of pixels."""
    import av  # only here: where it is missing, the tests that need a GPU still run

    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
        rate = stream.average_rate
        assert rate is not None
        return pictures, float(rate), stream.codec_context.name, str(stream.codec_context.pix_fmt)


def test_the_best_policy_is_recorded_at_the_end(spreeze: Spreeze) -> None:
    finished = spreeze.train("Toy/Drawn-v0", **FILMED)
    assert finished.returncode == 0, finished.stderr
    assert "run/videos/best.mp4" in finished.stdout
    pictures, fps, codec, pixels = decode(spreeze.run_dir / "videos" / "best.mp4")
    assert (len(pictures), fps, codec, pixels) == (EPISODE_STEPS + 1, 100.0, "h264", "yuv420p")
    assert {picture.shape for picture in pictures} == {(30, 32, 3)}  # 31 x 33 with even sides
    (event,) = [event for event in spreeze.journal("events") if event["kind"] == "video"]
    assert event["frames"] == EPISODE_STEPS + 1
    assert [path.name for path in (spreeze.run_dir / "videos").iterdir()] == ["best.mp4"]


def test_evaluations_are_recorded_beside_the_training(spreeze: Spreeze) -> None:
    run = spreeze.start_training("Toy/Drawn-v0", video_every=2, **UNHURRIED)
    videos = spreeze.run_dir / "videos"
    spreeze.wait_until(lambda: len(list(videos.glob("eval-*.mp4"))) >= 2, "two videos", run=run)
    run.process.send_signal(signal.SIGINT)
    assert run.finish().returncode == 130
    versions = [line["version"] for line in spreeze.journal("evaluations")[1::2]]
    recorded = [int(path.stem.removeprefix("eval-")) for path in videos.glob("eval-*.mp4")]
    assert set(recorded) <= set(versions)
    assert not (videos / "best.mp4").exists()  # --no-video
    assert not [path for path in videos.iterdir() if path.name.startswith(".")]
    for path in videos.iterdir():
        assert len(decode(path)[0]) == EPISODE_STEPS + 1


def test_a_video_that_fails_is_a_warning(spreeze: Spreeze) -> None:
    finished = spreeze.train("Toy/Drawn-v0", env_kwargs={"misbehaviour": "raise", "role": "recorder"}, **FILMED)
    assert finished.returncode == 0, finished.stderr
    assert "best.mp4 could not be recorded: RuntimeError: the canvas is torn" in finished.stdout
    assert not list((spreeze.run_dir / "videos").iterdir())
    assert [event["kind"] for event in spreeze.journal("events")].count("warning") == 1


def test_an_environment_that_does_not_draw_has_no_video_and_no_warning(spreeze: Spreeze) -> None:
    finished = spreeze.train("Toy/Point-v0", **FILMED)
    assert finished.returncode == 0, finished.stderr
    assert "warning" not in finished.stdout
    assert not (spreeze.run_dir / "videos").exists()
    assert "Recording" not in finished.stdout
    assert not (spreeze.run_dir / "logs" / "recorder.log").exists()  # no process was started to find out
    (event,) = [event for event in spreeze.journal("events") if event["kind"] == "video"]
    assert "Toy/Point-v0 does not draw pictures" in event["reason"]


def test_ctrl_c_leaves_the_video_out(spreeze: Spreeze) -> None:
    marker = spreeze.folder / "hangs"
    hang = {"misbehaviour": "hang", "role": "recorder", "marker": str(marker)}
    run = spreeze.start_training("Toy/Drawn-v0", env_kwargs=hang, **FILMED)
    spreeze.wait_until(marker.exists, "a picture", run=run)
    run.process.send_signal(signal.SIGINT)
    finished = run.finish()
    assert finished.returncode == 0, finished.stderr  # the run itself had ended before
    assert spreeze.read("summary.json")["stop_reason"] == "max_updates"
    assert not list((spreeze.run_dir / "videos").iterdir())


def test_a_call_from_python_records_only_when_asked(spreeze: Spreeze) -> None:
    script = spreeze.folder / "script.py"
    script.write_text("""
import sys
import spreeze
from toy_envs import Drawn

SETTINGS = dict(device="cpu", samplers=1, envs_per_sampler=4, warmup_steps=100, hidden=(16, 16), batch_size=32,
                replay_rows=1000, eval_episodes=1, max_updates=100, max_episode_steps=7, adapt=False, split="no")

def make(**kwargs):
    return Drawn(**kwargs)

spreeze.train(make, run_dir="silent", **SETTINGS)
spreeze.train(make, run_dir="filmed", video=True, **SETTINGS)
""")
    finished = spreeze.start_script(script).finish()
    assert finished.returncode == 0, finished.stderr
    assert not (spreeze.folder / "silent" / "videos").exists()
    assert len(decode(spreeze.folder / "filmed" / "videos" / "best.mp4")[0]) == 8


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"dashboard_port": 70000}, "--dashboard-port must be between 0 and 65535"),
        ({"video_every": -1}, "--video-every must be at least 0"),
        ({"dashboard_host": " "}, "--dashboard-host must be an address"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(spreeze: Spreeze, fields: dict[str, object], said: str) -> None:
    finished = spreeze("train", "Toy/Point-v0", *spreeze.small(**fields))
    assert finished.returncode == 2
    (line,) = finished.stderr.strip().splitlines()
    assert said in line
