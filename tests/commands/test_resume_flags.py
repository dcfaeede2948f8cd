"""What `spreeze resume` shows of a run: as the run was started, unless its flags say otherwise, for one session."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import spreeze
from spreeze.commands import cli, start_run
from spreeze.config import Config
from spreeze.errors import ConfigError
from spreeze.supervision.resume import ResumeRequest, as_shown

SMALL: dict[str, Any] = {
    "serial": True,
    "device": "cpu",
    "tensorboard": False,
    "envs_per_sampler": 2,
    "hidden": (8,),
    "batch_size": 8,
    "warmup_steps": 20,
    "eval_episodes": 1,
    "max_episode_steps": 10,
}


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[ResumeRequest]:
    """What the command asks for."""
    asked: list[ResumeRequest] = []

    def resume_run(request: ResumeRequest, _: float) -> Any:
        asked.append(request)
        return SimpleNamespace(stop_reason="max_updates")

    monkeypatch.setattr(start_run, "resume_run", resume_run)
    monkeypatch.setattr(start_run, "ending_what_is_started", contextlib.nullcontext)
    return asked


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("", {}),
        ("--max-updates 40", {}),
        ("--no-quiet", {"quiet": False}),
        ("--quiet --no-dashboard", {"quiet": True, "dashboard": False}),
        ("--dashboard --open --keep_dashboard", {"dashboard": True, "open": True, "keep_dashboard": True}),
        ("--no-video --video-every=3", {"video": False, "video_every": 3}),
    ],
)
def test_only_flags_that_are_given_change_what_is_shown(
    words: str, shown: dict[str, Any], requests: list[ResumeRequest]
) -> None:
    assert cli._resume(["run", *words.split()]) == 0
    assert [request.shown for request in requests] == [shown]


def test_a_quiet_run_speaks_in_the_session_that_is_not_quiet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    spreeze.train("Pendulum-v1", **SMALL, max_updates=10, run_dir=run, quiet=True)
    spreeze.resume(run, max_updates=20)
    assert capsys.readouterr().out == ""
    spreeze.resume(run, max_updates=30, quiet=False)
    assert "All updates made" in capsys.readouterr().out
    assert json.loads((run / "config.json").read_text())["quiet"] is True
    spreeze.resume(run, max_updates=40)  # as it was started
    assert capsys.readouterr().out == ""


def test_a_run_whose_dashboard_was_kept_can_be_resumed_without_one() -> None:
    kept = Config("Pendulum-v1").replace(dashboard=True, keep_dashboard=True, video=True)
    shown = as_shown(kept, {"dashboard": False}).watching
    assert (shown.dashboard, shown.keep_dashboard, shown.video) == (False, False, True)
    with pytest.raises(ConfigError, match="--keep-dashboard needs the dashboard"):
        as_shown(kept, {"dashboard": False, "keep_dashboard": True})


def test_nothing_but_limits_and_what_is_shown_can_be_changed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'seed' cannot be changed when a run is resumed: only max_seconds"):
        spreeze.resume(tmp_path, seed=1)
