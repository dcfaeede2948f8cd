from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from folders import append, finish, metric, write_run

from spreeze.channels.frames import FramesChannel
from spreeze.views.dashboard.runs import MAX_READERS, Runs, find_runs, id_of
from spreeze.views.dashboard.shared_state import Frames


def refresh(runs: Runs, *run_ids: str) -> None:
    async def once() -> None:
        async with runs.fresh(run_ids):
            pass

    asyncio.run(once())


def test_runs_are_found_newest_first_and_others_are_left_out(tmp_path: Path) -> None:
    for i, name in enumerate(("old", "new")):
        write_run(tmp_path / name, 3)
        os.utime(tmp_path / name / "config.json", (1000 + i,) * 2)
    (tmp_path / "no-run").mkdir()
    (tmp_path / "file").write_text("x")
    assert [path.name for path in find_runs([tmp_path])] == ["new", "old"]
    assert [path.name for path in find_runs([tmp_path / "old", tmp_path])] == ["new", "old"]
    assert find_runs([tmp_path / "nowhere", tmp_path / "file"]) == []


def test_ids_are_no_paths_and_unknown_ones_lead_to_the_newest_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 3)
    runs = Runs([tmp_path])
    assert runs.known("/etc/passwd") == runs.known(None) == id_of(run)
    assert "/" not in id_of(run)
    assert runs.entries[0].label.startswith("run\nPendulum-v1 · sac · seed 0")
    assert Runs([tmp_path / "nowhere"]).known(None) is None


def test_an_evaluation_under_way_is_told_while_the_run_goes_on(tmp_path: Path) -> None:
    run_id = id_of(write_run(tmp_path / "run", 3))
    runs = Runs([tmp_path])

    def told() -> str:
        refresh(runs, run_id)
        return runs.run(run_id).view.state_text

    running = told()
    under_way = {"version": 81, "played": 3, "episodes": 10, "mean_return": -150.0}
    append(tmp_path / "run" / "metrics.jsonl", metric(3, evaluating=under_way))
    assert told() == f"{running} · evaluating version 81: 3 of 10 episodes, mean so far −150.0"
    append(tmp_path / "run" / "metrics.jsonl", metric(4, evaluating=None))
    assert told() == running
    append(tmp_path / "run" / "metrics.jsonl", metric(5, evaluating=under_way))
    finish(tmp_path / "run", 5)
    assert "evaluating" not in told()


def test_a_run_is_read_once_however_many_look(tmp_path: Path) -> None:
    run_id = id_of(write_run(tmp_path / "run", 3))
    runs = Runs([tmp_path])
    refresh(runs, run_id)
    view = runs.run(run_id).view
    refresh(runs, run_id)
    assert runs.run(run_id).view is view  # nothing new: nothing is made again
    assert view.figures is view.figures
    assert view.chart("wall_s") is view.chart("wall_s")
    append(tmp_path / "run" / "metrics.jsonl", metric(3))
    refresh(runs, run_id)
    assert runs.run(run_id).view is not view


def test_only_so_many_runs_stay_open(tmp_path: Path) -> None:
    ids = [id_of(write_run(tmp_path / f"run-{i}", 1)) for i in range(MAX_READERS + 5)]
    runs = Runs([tmp_path])
    for run_id in ids:
        refresh(runs, run_id)
    assert len(runs._open) == MAX_READERS
    refresh(runs, *ids)
    assert len(runs._open) == len(ids)  # all are looked at


def test_a_run_that_is_certain_is_there_before_its_files_and_after(tmp_path: Path) -> None:
    run = tmp_path / "run"
    runs = Runs([], lambda: "live", certain=run)
    run_id = id_of(run)
    refresh(runs, run_id)
    assert runs.run(run_id).view.state == "gone"
    write_run(run, 3)
    refresh(runs, run_id)
    assert runs.run(run_id).view.state == "running"
    shutil.rmtree(run)
    runs.scan()
    refresh(runs, run_id)
    assert runs.run(run_id).view.state == "gone"
    assert runs.run(run_id).view.figures[0].value != "–"


@pytest.mark.parametrize("content", ["", "[]", "{", json.dumps({"env": None, "seed": [1]}), "\x00"])
def test_damaged_configs_are_listed_and_shown(tmp_path: Path, content: str) -> None:
    run = write_run(tmp_path / "run", 3)
    (run / "config.json").write_text(content)
    (run / "summary.json").write_text(content)
    runs = Runs([tmp_path])
    refresh(runs, id_of(run))
    view = runs.run(id_of(run)).view
    assert view.task
    assert view.settings
    assert view.progress


def test_frames_are_read_once_for_all() -> None:
    channel = FramesChannel()
    frames, writer = Frames(channel.reader()), channel.writer()
    assert frames.newest() is None
    assert frames.viewer_text() == "no picture"
    writer.write(b"jpeg", 3, -1.5, 20, 0.0)

    async def both() -> None:
        first, second = await asyncio.gather(frames.after(0), frames.after(0))
        assert first is second
        assert first is not None
        assert first.jpeg == b"jpeg"

    asyncio.run(both())
    assert frames.viewer_text() == "live"
    assert Frames(None).viewer_text() == "only while running"
    channel.close()


@pytest.mark.parametrize("module", ["spreeze.views.dashboard.process", "spreeze.views.dashboard.command"])
def test_the_dashboard_starts_without_torch_gymnasium_and_before_nicegui(module: str) -> None:
    program = f"import sys, {module}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert not {"torch", "gymnasium", "nicegui"} & set(done.stdout.split())
