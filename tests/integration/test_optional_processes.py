"""Processes that a run can do without: they come and go, fail, hang and speak, and the run goes on."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image

from spreeze.channels.frames import Frame
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.runs.result import Result
from spreeze.supervision import optional_processes
from spreeze.supervision.supervisor import supervise
from spreeze.supervision.workers import Workers
from spreeze.views.display import QuietDisplay

GUARD_S = 120.0  # against a hang, not an expectation

Story = Callable[[Workers], Iterator[None]]


class Turns:
    """Drives a run by a generator: each turn of the supervisor is one step of it, and its end is the run's."""

    def __init__(self, workers: Workers, story: Story) -> None:
        self._story, self.is_over = story(workers), False
        self._guard = time.monotonic() + GUARD_S

    def turn(self, now: float) -> None:
        assert now < self._guard, "the story came to no end"
        self.is_over = next(self._story, StopIteration) is StopIteration


def tell(tmp_path: Path, story: Story, **fields: Any) -> Result:
    """Run a small training for as long as a story takes that begins with the viewer's start."""

    def with_viewer(workers: Workers) -> Iterator[None]:
        while not updates(workers):
            yield
        workers.add_optional("viewer")
        yield from story(workers)

    small = {"samplers": 1, "envs_per_sampler": 1, "batch_size": 32, "learner_threads": 1, "hidden": (16, 16)}
    quick = {"warmup_steps": 100, "device": "cpu", "split": "no"}
    # What is waited for here is a viewer that starts or ends, with little priority: the others leave it the cores.
    unhurried = {"min_updates_per_step": 0.0, "max_updates_per_step": 0.2}
    if "env" not in fields:
        fields["env_kwargs"] = {"step_s": 0.001, **fields.get("env_kwargs", {})}
    where = {"run_dir": str(tmp_path / "run"), "env_module": "toy_envs", "env": "Toy/Drawn-v0"}
    often = {"publish_interval_s": 0.05, "eval_episodes": 1, "max_samplers": 1}
    config = Config("?").replace(**{**small, **quick, **unhurried, **where, **often, **fields})
    return supervise(
        config, EnvSpec.of(config), time.monotonic(), QuietDisplay(), lambda workers, _: Turns(workers, with_viewer)
    )


def updates(workers: Workers) -> int:
    return int(workers.channels.metrics.learner["updates"][0])


def optional_pids(workers: Workers) -> set[int]:
    everyone = {pid for pids in workers.pids_by_role().values() for pid in pids}
    return everyone - {child.process.pid for child in workers.members}


def events(tmp_path: Path, kind: str) -> list[str]:
    lines = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    return [line["reason"] for line in lines if line["kind"] == kind]


def fifty_more(workers: Workers) -> Iterator[None]:
    """The run goes on: fifty updates from here."""
    before = updates(workers)
    while updates(workers) < before + 50:
        yield


def until_alone(workers: Workers) -> Iterator[None]:
    while optional_pids(workers):
        yield
    yield  # what it said at its end is read in the next turn
    yield from fifty_more(workers)


@pytest.fixture(autouse=True)
def toy_envs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


# --- what the viewer shows --------------------------------------------------------------------------------------


def test_pictures_of_pendulum_change_while_it_trains(tmp_path: Path) -> None:
    seen: list[Frame] = []

    def story(workers: Workers) -> Iterator[None]:
        reader = workers.channels.frames.reader()
        while len(seen) < 5:
            if (frame := reader.newest()) is not None:
                seen.append(frame)
            yield

    tell(tmp_path, story, env="Pendulum-v1")
    pictures = [np.asarray(Image.open(io.BytesIO(frame.jpeg))) for frame in seen]
    assert {picture.shape for picture in pictures} == {(500, 500, 3)}
    assert len({picture.tobytes() for picture in pictures}) == len(seen)
    assert all(frame.version > 0 for frame in seen)
    assert any(frame.episode_steps > 0 and frame.episode_return < 0 for frame in seen)
    assert events(tmp_path, "warning") == events(tmp_path, "view") == []


def test_every_episode_is_played_by_the_newest_version(tmp_path: Path) -> None:
    versions: set[int] = set()

    def story(workers: Workers) -> Iterator[None]:
        reader = workers.channels.frames.reader()
        while len(versions) < 3:
            if (frame := reader.newest()) is not None:
                versions.add(frame.version)
            yield

    tell(tmp_path, story)
    assert events(tmp_path, "warning") == []


# --- what may happen to it --------------------------------------------------------------------------------------


def test_a_killed_viewer_is_started_once_more_and_the_run_goes_on(tmp_path: Path) -> None:
    def story(workers: Workers) -> Iterator[None]:
        for _ in range(optional_processes.PATIENCE["viewer"]):
            (pid,) = optional_pids(workers)
            os.kill(pid, signal.SIGKILL)
            while pid in optional_pids(workers):
                yield
        yield from until_alone(workers)

    assert tell(tmp_path, story).stop_reason == "measured"
    first, second = events(tmp_path, "warning")
    assert first.startswith("viewer failed, it is restarted: it was killed by SIGKILL")
    assert second.startswith("viewer failed, the run continues without it: it was killed by SIGKILL")


@pytest.mark.full
def test_an_environment_that_does_not_draw_is_no_failure(tmp_path: Path) -> None:
    assert tell(tmp_path, until_alone, env="Toy/Point-v0").stop_reason == "measured"
    (reason,) = events(tmp_path, "view")
    assert "Toy/Point-v0 does not draw pictures" in reason
    assert events(tmp_path, "warning") == []


@pytest.mark.full
def test_a_picture_that_is_none_is_no_failure(tmp_path: Path) -> None:
    assert tell(tmp_path, until_alone, env_kwargs={"misbehaviour": "nothing"}).stop_reason == "measured"
    (reason,) = events(tmp_path, "view")
    assert "NoneType, not a picture" in reason


@pytest.mark.full
def test_a_render_that_raises_ends_the_viewer_alone(tmp_path: Path) -> None:
    assert tell(tmp_path, until_alone, env_kwargs={"misbehaviour": "raise"}).stop_reason == "measured"
    (warning,) = events(tmp_path, "warning")
    assert warning == "viewer failed, the run continues without it: RuntimeError: the canvas is torn"


def test_a_render_that_hangs_ends_the_viewer_alone(tmp_path: Path) -> None:
    hang = {"misbehaviour": "hang", "marker": str(tmp_path / "hangs")}
    assert tell(tmp_path, until_alone, env_kwargs=hang, hang_s=3).stop_reason == "measured"
    first, second = events(tmp_path, "warning")
    assert "it is restarted: it has shown no sign of life" in first
    assert "the run continues without it: it has shown no sign of life" in second


@pytest.mark.full
def test_a_viewer_that_hangs_at_the_end_is_gone_after_it(tmp_path: Path) -> None:
    marker, pids = tmp_path / "hangs", set()

    def story(workers: Workers) -> Iterator[None]:
        while not marker.exists():
            yield
        pids.update(optional_pids(workers))

    hang = {"misbehaviour": "hang", "marker": str(marker)}
    assert tell(tmp_path, story, env_kwargs=hang).stop_reason == "measured"
    assert pids
    assert not any(psutil.pid_exists(pid) for pid in pids)


# --- what it may say --------------------------------------------------------------------------------------------


def test_an_optional_process_can_end_the_run_and_give_its_address(tmp_path: Path) -> None:
    def story(_workers: Workers) -> Iterator[None]:
        while True:
            yield

    result = tell(tmp_path, story, env_kwargs={"misbehaviour": "message"})
    assert result.stop_reason == "stopped"
    assert result.updates > 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["stop_reason"] == "stopped"
    assert events(tmp_path, "stop") == ["the viewer asks to end the run"]
    assert events(tmp_path, "address") == ["the viewer is at http://127.0.0.1:1/"]  # without its token
