"""Whatever becomes of the disk, the training goes on, says so once, and goes back to normal when the disk does."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spreeze.channels.weights import read_weights
from spreeze.host.logs import KEPT_BYTES
from spreeze.policy.file import load_policy

if TYPE_CHECKING:
    from conftest import Running, Spreeze

DISK_BYTES = 16 << 20
STOP_GUARD_S = 30.0

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes through /proc")

# An environment that counts its steps outside of the run folder: what was really played, whatever the disk takes.
PACED: dict[str, Any] = {"max_seconds": 300, "no_tensorboard": True}


# --- disks that fail --------------------------------------------------------------------------------------------


def _mounts(*words: object) -> bool:
    return subprocess.run(["mount", *map(str, words)], capture_output=True).returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not _mounts("-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", folder):
        pytest.skip("only root may mount a file system; a limit stands for it in another test")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> Path:
    """Leave no byte free, also none that is free for a moment while a file is replaced; return what takes them."""
    filler = folder / "filler"
    with filler.open("ab", buffering=0) as file:
        for block in (1 << 16, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(block))
    return filler


def start(spreeze: Spreeze, run_dir: Path, **settings: Any) -> Running:
    spreeze.run_dir = run_dir
    counts = spreeze.folder / "counts"
    counts.mkdir()
    run = spreeze.start_training(
        "Toy/Point-v0", run_dir=run_dir, env_kwargs={"count_dir": str(counts)}, **{**PACED, **settings}
    )
    spreeze.wait_for_updates(run)
    spreeze.wait_until(lambda: spreeze.journal("evaluations"), "an evaluation", run=run)
    return run


def steps(spreeze: Spreeze) -> int:
    return sum(path.stat().st_size for path in (spreeze.folder / "counts").glob("sampler-*"))


def wait_for_steps(spreeze: Spreeze, run: Running, more: int = 2000) -> None:
    before = steps(spreeze)
    spreeze.wait_until(lambda: steps(spreeze) > before + more, "more steps", run=run)


def wait_for_words(spreeze: Spreeze, run: Running, words: str) -> None:
    spreeze.wait_until(lambda: words in run.said(), f"'{words}' in what it says", run=run)


def warnings(spreeze: Spreeze, words: str) -> list[dict[str, Any]]:
    events = spreeze.journal("events")
    return [event for event in events if event["kind"] == "warning" and words in event["reason"]]


def end(spreeze: Spreeze, run: Running) -> None:
    os.kill(run.process.pid, signal.SIGINT)
    finished = run.finish(STOP_GUARD_S)
    assert (finished.returncode, finished.stderr) == (130, "")
    assert spreeze.read("summary.json")["stop_reason"] == "interrupted"


def check_folder(folder: Path) -> None:
    """All that is there is whole, and nothing is there that should not be."""
    for journal in ("metrics", "evaluations", "events"):
        lines = (folder / f"{journal}.jsonl").read_bytes().split(b"\n")
        assert lines.pop() == b""
        times = [json.loads(line)["wall_s"] for line in lines]
        assert times == sorted(times)
    assert not [path for path in folder.rglob(".*") if path.name != ".weights"]
    assert not (folder / "lock").exists()
    for path in (folder / "weights").iterdir():
        read_weights(path, must_have_checksum=True)
    best = json.loads((folder / "best" / "evaluation.json").read_text())
    assert load_policy(folder).version == best["version"]


def check_trouble(spreeze: Spreeze, reason: str) -> None:
    """It was said once that the folder cannot be written and once that it can, and what had to wait is there."""
    (began,) = warnings(spreeze, "the run folder")[:1]
    (over,) = warnings(spreeze, "the run folder")[1:]
    assert f"cannot be written ({reason})" in began["reason"]
    assert "can be written again" in over["reason"]
    assert "lost" not in over["reason"]
    waited = [line for line in spreeze.journal("metrics") if began["wall_s"] <= line["wall_s"] <= over["wall_s"]]
    assert len(waited) > 1
    assert [line["env_steps"] for line in waited] == sorted({line["env_steps"] for line in waited})


# --- full, read-only, gone ---------------------------------------------------------------------------------------


def test_a_run_outlives_a_full_disk(spreeze: Spreeze, disk: Path) -> None:
    run = start(spreeze, disk / "run")
    evaluations = len(spreeze.journal("evaluations"))
    filler = fill(disk)

    # After a few lines: its journals may have room in blocks that are theirs already.
    wait_for_words(spreeze, run, f"the run folder {disk / 'run'} cannot be written (No space left on device)")
    wait_for_steps(spreeze, run)
    updates = spreeze.journal("metrics")[-1]["updates"]
    filler.unlink()
    wait_for_words(spreeze, run, f"the run folder {disk / 'run'} can be written again")
    spreeze.wait_until(lambda: warnings(spreeze, "can be written again"), "the end of the trouble", run=run)
    weights = set((disk / "run" / "weights").iterdir())
    spreeze.wait_until(lambda: set((disk / "run" / "weights").iterdir()) - weights, "newer weights", run=run)

    end(spreeze, run)
    check_trouble(spreeze, "No space left on device")
    assert spreeze.read("summary.json")["updates"] > updates
    assert len(spreeze.journal("evaluations")) > evaluations
    check_folder(disk / "run")


def test_a_run_outlives_files_that_may_not_grow(spreeze: Spreeze, in_full: bool, tmp_path: Path) -> None:
    if os.geteuid() == 0 and not in_full:
        pytest.skip("for those who may not mount a small disk: the test before says the same")
    run = start(spreeze, tmp_path / "run")
    sampler = spreeze.processes("sampler")  # whose environment counts its steps in a file
    processes = [process for process in spreeze.processes() if process not in sampler]
    # In all others, as a quota does it: a part of the next line fits. What the run prints is shorter, and goes on.
    room = (tmp_path / "run" / "metrics.jsonl").stat().st_size + 100
    for process in processes:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    wait_for_words(spreeze, run, f"the run folder {tmp_path / 'run'} cannot be written (")
    for process in processes:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    wait_for_words(spreeze, run, f"the run folder {tmp_path / 'run'} can be written again")
    spreeze.wait_until(lambda: warnings(spreeze, "can be written again"), "the end of the trouble", run=run)

    end(spreeze, run)
    check_trouble(spreeze, "No space left on device")  # which is what the rest of a line is taken for
    check_folder(tmp_path / "run")


@pytest.mark.full
def test_a_disk_that_is_full_at_the_end_fails_the_run_in_one_line(spreeze: Spreeze, disk: Path) -> None:
    run = start(spreeze, disk / "run")
    fill(disk)
    wait_for_words(spreeze, run, "cannot be written (No space left on device)")
    best = (disk / "run" / "best" / "policy.safetensors").read_bytes()

    os.kill(run.process.pid, signal.SIGINT)

    finished = run.finish(STOP_GUARD_S)
    assert finished.returncode == 1
    (line,) = finished.stderr.splitlines()
    assert line.startswith(f"spreeze: {disk / 'run'} lacks summary.json ")
    assert "(No space left on device)" in line
    assert not [path for path in (disk / "run").rglob(".*") if path.name != ".weights"]
    assert best  # what was there before is there still, whole
    load_policy(disk / "run")


@pytest.mark.full
def test_a_run_outlives_a_read_only_disk(spreeze: Spreeze, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = start(spreeze, folder)
    # A mount of the folder upon itself: one without writers, which a disk that fails turns read-only too.
    if not _mounts("--bind", folder, folder) or not _mounts("-o", "remount,ro,bind", folder):
        run.process.kill()
        run.finish()
        pytest.skip("only root may mount a file system")
    try:
        wait_for_words(spreeze, run, f"the run folder {folder} cannot be written (Read-only file system)")
        for role in ("sampler", "learner"):  # which are needed, and have no log for their successors
            (victim,) = spreeze.processes(role)
            victim.kill()
            wait_for_words(spreeze, run, f"{role} failed" if role == "learner" else "sampler 0 failed")
        wait_for_steps(spreeze, run)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
    wait_for_words(spreeze, run, f"the run folder {folder} can be written again")
    spreeze.wait_until(lambda: warnings(spreeze, "can be written again"), "the end of the trouble", run=run)

    end(spreeze, run)
    check_trouble(spreeze, "Read-only file system")
    check_folder(folder)


def test_a_deleted_run_folder_is_made_anew(spreeze: Spreeze, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = start(spreeze, folder)
    config = spreeze.read("config.json")
    (tmp_path / "run").rename(tmp_path / "deleted")  # at once, for all processes; what is open in it stays open
    shutil.rmtree(tmp_path / "deleted")

    wait_for_words(spreeze, run, f"the run folder {folder} was deleted: it was created again")
    spreeze.wait_for_updates(run)
    spreeze.wait_until(lambda: list((folder / "weights").glob("policy-*")), "new weights", run=run)
    spreeze.wait_until((folder / "best" / "evaluation.json").exists, "the best version", run=run)
    assert spreeze.read("config.json") == config

    end(spreeze, run)
    assert len(warnings(spreeze, "was deleted")) == 1
    assert not warnings(spreeze, "cannot be written")
    check_folder(folder)


@pytest.mark.full
def test_a_run_outlives_the_last_file_handle(spreeze: Spreeze, tmp_path: Path) -> None:
    run = start(spreeze, tmp_path / "run")
    limits = {process.pid: resource.prlimit(process.pid, resource.RLIMIT_NOFILE) for process in spreeze.processes()}
    for pid, (_, hard) in limits.items():
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))
    wait_for_words(spreeze, run, f"the run folder {tmp_path / 'run'} cannot be written (Too many open files)")
    wait_for_steps(spreeze, run)
    for pid, limit in limits.items():
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
    wait_for_words(spreeze, run, f"the run folder {tmp_path / 'run'} can be written again")
    spreeze.wait_until(lambda: warnings(spreeze, "can be written again"), "the end of the trouble", run=run)

    end(spreeze, run)
    check_trouble(spreeze, "Too many open files")
    check_folder(tmp_path / "run")


# --- damaged weights ---------------------------------------------------------------------------------------------


def _truncate(path: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size))


def _flip(path: Path, rng: random.Random) -> None:
    with path.open("r+b") as file:
        at = rng.randrange(os.fstat(file.fileno()).st_size)
        byte = os.pread(file.fileno(), 1, at)
        os.pwrite(file.fileno(), bytes([byte[0] ^ 1 << rng.randrange(8)]), at)


def _delete(path: Path, _rng: random.Random) -> None:
    path.unlink()


@pytest.mark.full
def test_damaged_weights_end_no_process(spreeze: Spreeze, in_full: bool, tmp_path: Path) -> None:
    run = start(spreeze, tmp_path / "run", samplers=2)
    before = {process.pid for process in spreeze.processes()}
    rng = random.Random(0)
    damages: tuple[Callable[[Path, random.Random], None], ...] = (_truncate, _flip, _delete)
    damaged: set[Path] = set()
    while len(damaged) < (500 if in_full else 25):
        newest = max((tmp_path / "run" / "weights").glob("policy-*"), default=None)
        if newest is not None and newest not in damaged:
            with contextlib.suppress(FileNotFoundError):  # a newer one has come
                rng.choice(damages)(newest, rng)
                damaged.add(newest)
        assert run.process.poll() is None, run.said()
    last = max(int(path.stem.partition("-")[2]) for path in damaged)
    spreeze.wait_until(
        lambda: any(line["version"] > last for line in spreeze.journal("evaluations")),
        "an evaluation of a version that is whole",
        run=run,
    )
    assert {process.pid for process in spreeze.processes()} == before  # nobody was started again

    end(spreeze, run)
    assert not warnings(spreeze, "")


# --- logs --------------------------------------------------------------------------------------------------------

# Prints a long line at every step, with its number.
CHATTY = """
import gymnasium
from toy_envs import Point

class Chatty(Point):
    lines = 0

    def step(self, action):
        print(f"line {Chatty.lines} " + "x" * 250_000)
        Chatty.lines += 1
        return super().step(action)

gymnasium.register("Toy/Chatty-v0", Chatty, max_episode_steps=20)
"""


@pytest.mark.full
def test_what_an_environment_prints_does_not_fill_the_disk(spreeze: Spreeze) -> None:
    (spreeze.folder / "chatty.py").write_text(CHATTY)
    log = spreeze.run_dir / "logs" / "sampler-0.log"
    run = spreeze.start_training("Toy/Chatty-v0", env_module=("toy_envs", "chatty"), **PACED)

    def has_been_cut() -> bool:
        with log.open("rb") as file:
            file.seek(KEPT_BYTES)
            return b"bytes were cut out here]\n" in file.read(1000)

    spreeze.wait_until(lambda: log.exists() and has_been_cut(), "a log that was cut", run=run)
    end(spreeze, run)
    text = log.read_text()
    assert text.startswith("line 0 ")
    printed = [int(line.split()[1]) for line in text.splitlines() if line.startswith("line ") and line.endswith("x")]
    assert len(printed) < printed[-1]  # what is missing was cut out between beginning and end
    assert printed == sorted(printed)
