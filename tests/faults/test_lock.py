"""One process writes to a run folder: others are told who it is, and a dead one keeps nobody out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spreeze.config import Config
from spreeze.errors import RunFolderError
from spreeze.runs.run_folder import RunFolder

if TYPE_CHECKING:
    from conftest import Spreeze

# Creates or reopens a run folder, starts a program that outlives it, and waits.
OWNER = """
import subprocess, sys
from pathlib import Path
from spreeze.config import Config
from spreeze.runs.run_folder import RunFolder

path, how = sys.argv[1:]
config = Config("Pendulum-v1").replace(run_dir=path)
folder = RunFolder.reopen(Path(path)) if how == "reopen" else RunFolder.create(config)
folder.write("config.json", config.flat())
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=2, close_fds=False)
print(child.pid, flush=True)
sys.stdin.read()
folder.close()
"""


def create(path: Path) -> RunFolder:
    return RunFolder.create(Config("Pendulum-v1").replace(run_dir=str(path)))


@contextmanager
def owner(path: Path, how: str = "create") -> Iterator[subprocess.Popen[bytes]]:
    """A process that owns a folder, with a child that does not end with it."""
    words = [sys.executable, "-c", OWNER, str(path), how]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
        os.kill(child, signal.SIGKILL)


def refusal(path: Path) -> str:
    with pytest.raises(RunFolderError) as created:
        create(path)
    with pytest.raises(RunFolderError) as reopened:
        RunFolder.reopen(path)
    assert str(created.value) == str(reopened.value)
    return str(created.value)


@pytest.mark.parametrize("how", ["create", "reopen"])
def test_a_folder_in_use_is_refused_by_the_name_of_its_owner(tmp_path: Path, how: str) -> None:
    path = tmp_path / "run"
    if how == "reopen":
        folder = create(path)
        folder.write("config.json", Config("Pendulum-v1").flat())
        folder.close()
    with owner(path, how) as process:
        before = {entry: entry.stat().st_mtime_ns for entry in path.rglob("*")}
        message = refusal(path)
        assert f"is in use by process {process.pid}:" in message
        assert f"kill -INT {process.pid}" in message
        assert "\n" not in message
        assert {entry: entry.stat().st_mtime_ns for entry in path.rglob("*")} == before
        process.communicate()  # it ends in order
        assert not (path / "lock").exists()
        RunFolder.reopen(path).close()


def test_a_killed_owner_keeps_nobody_out(tmp_path: Path) -> None:
    with owner(tmp_path / "run") as process:
        process.kill()
        process.wait()  # its child lives on
        assert (tmp_path / "run" / "lock").read_text().startswith(f"{process.pid} ")
        folder = RunFolder.reopen(tmp_path / "run")
        assert f"process {os.getpid()}:" in refusal(tmp_path / "run")
        folder.close()


def test_what_a_stranger_has_written_to_a_lock_is_not_shown(tmp_path: Path) -> None:
    folder = create(tmp_path / "run")
    folder.write("config.json", Config("Pendulum-v1").flat())
    (tmp_path / "run" / "lock").write_text("1234 a-machine\n\x1b]0;and more")
    assert "is in use by another process: end that run first (Ctrl-C there)" in refusal(tmp_path / "run")
    folder.close()


def test_a_lock_of_a_number_that_lives_again_keeps_nobody_out(tmp_path: Path) -> None:
    # After a restart of the machine, another program may have the number of the one that died.
    folder = create(tmp_path / "run")
    folder.write("config.json", Config("Pendulum-v1").flat())
    folder.close()
    (tmp_path / "run" / "lock").write_text(f"{os.getppid()} {os.uname().nodename}\n")
    RunFolder.reopen(tmp_path / "run").close()


def test_a_run_that_was_killed_before_it_began_leaves_its_folder_to_the_next(tmp_path: Path) -> None:
    folder = create(tmp_path / "run")
    (tmp_path / "run" / "logs" / "sampler-0.log").write_text("some words")
    folder._lock.release()
    (tmp_path / "run" / "lock").write_text("1 elsewhere\n")
    create(tmp_path / "run").close()


def test_a_file_of_the_users_that_is_called_lock_is_left_alone(tmp_path: Path) -> None:
    for name in ("lock", "thesis.tex"):
        (tmp_path / name).write_text("precious")
    with pytest.raises(RunFolderError, match="not empty"):
        create(tmp_path)
    assert (tmp_path / "lock").read_text() == "precious"


def test_a_lock_that_is_deleted_is_made_anew(tmp_path: Path) -> None:
    folder = create(tmp_path / "run")
    folder.write("config.json", Config("Pendulum-v1").flat())
    (tmp_path / "run" / "lock").unlink()
    folder.append("events", {"wall_s": 1.0})
    assert f"process {os.getpid()}:" in refusal(tmp_path / "run")
    assert folder.turn() == []
    folder.close()


def test_a_run_does_not_write_into_the_folder_of_one_that_has_taken_its_place(tmp_path: Path) -> None:
    path = tmp_path / "run"
    folder = create(path)
    folder.append("events", {"mine": 1})
    path.rename(tmp_path / "away")
    with owner(path) as process:
        folder.append("events", {"mine": 2})
        (said,) = folder.turn()
        assert f"is in use by process {process.pid}:" in said
        assert not (path / "events.jsonl").exists()
    assert folder.close() is None  # the other is gone, and nobody else wants it
    assert (path / "events.jsonl").read_text() == '{"mine": 2}\n'


# --- going on with a run -----------------------------------------------------------------------------------------


def test_reopening_cuts_off_what_was_written_halfway(tmp_path: Path) -> None:
    path = tmp_path / "run"
    folder = create(path)
    folder.write("config.json", Config("Pendulum-v1").flat())
    folder.append("metrics", {"wall_s": 1})
    folder.append("events", {"wall_s": 1})
    folder.close()
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"wall_s": 2, "env')
    (path / ".summary.json.123").write_text("{")
    (path / "weights" / ".policy-00000001.safetensors.123").write_text("half")
    again = RunFolder.reopen(path)
    assert (path / "metrics.jsonl").read_text().endswith('"env')  # what refuses to resume changes nothing
    again.repair()
    assert (path / "metrics.jsonl").read_text() == '{"wall_s": 1}\n'
    again.append("metrics", {"wall_s": 3})
    again.close()
    assert [json.loads(line)["wall_s"] for line in (path / "metrics.jsonl").read_text().splitlines()] == [1, 3]
    assert (path / "events.jsonl").read_text() == '{"wall_s": 1}\n'
    assert not list(path.rglob(".*"))


def test_what_is_no_run_folder_is_not_reopened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "file"):
        with pytest.raises(RunFolderError, match="is not a run folder"):
            RunFolder.reopen(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_second_training_in_the_same_folder_is_refused_and_the_first_goes_on(spreeze: Spreeze) -> None:
    run = spreeze.start_training("Toy/Point-v0", max_seconds=300)
    spreeze.wait_until((spreeze.run_dir / "lock").exists, "a lock", run=run)
    second = spreeze.train("Toy/Point-v0")
    assert second.returncode == 2
    (line,) = second.stderr.splitlines()
    assert f"'run' is in use by process {run.process.pid}:" in line
    spreeze.wait_until(lambda: spreeze.journal("metrics"), "a line of metrics.jsonl", run=run)
    os.kill(run.process.pid, signal.SIGINT)
    assert run.finish().returncode == 130
    assert spreeze.read("summary.json")["stop_reason"] == "interrupted"
    assert not (spreeze.run_dir / "lock").exists()
