"""A run folder from a stranger touches nothing outside it, and a command that refuses it changes nothing inside.

Every name of a finished run is replaced by links, pipes, devices and the like, one at a time. What is outside looks
like a run too, with contents that a reader would show.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from spreeze.channels.weights import WeightsChannel, WeightsFile, read_weights, write_weights
from spreeze.commands.evaluate import evaluate_run
from spreeze.config import Config
from spreeze.errors import RunFolderError, SpreezeError
from spreeze.evaluation.best import Best
from spreeze.host.logs import MAX_LOG_BYTES, open_log, trim_logs
from spreeze.policy.export import export_policy
from spreeze.policy.file import load_policy
from spreeze.runs.checkpoint_format import Manifest, newest_checkpoints, write_manifest
from spreeze.runs.folder_check import FILES, FOLDERS, require_own_entries
from spreeze.runs.journal_writer import JournalWriter
from spreeze.runs.records import Evaluation
from spreeze.runs.replay_log import ReplayLog
from spreeze.runs.run_folder import RunFolder
from spreeze.supervision import resume as resume_module
from spreeze.supervision.resume import ResumeRequest, resume_run
from spreeze.views.dashboard.run_view import RunView
from spreeze.views.dashboard.runs import Runs, find_runs
from spreeze.views.plot import read_run
from spreeze.views.tensorboard import EventFile
from spreeze.views.watch import PolicySource, WatchRequest

if TYPE_CHECKING:
    from conftest import Spreeze

# What nothing may show: it is in every file outside.
MARK = 777_777
OUTSIDE_LINE = {
    **dict.fromkeys(("mean_return", "best_return", "wall_s", "env_steps", "version", "sampling_hz"), MARK),
    **{"env": f"Outside-{MARK}", "kind": "error", "reason": f"outside {MARK}", "stop_reason": "failed"},
}
# Names that a finished run does not have, and a stranger may add.
ADDED_FILES = (
    *("lock", "notes.txt", ".summary.json.123", ".metrics.jsonl.123", "weights/.policy-00000001.safetensors.123"),
    *("videos/best.mp4", "videos/.weights/policy-00000001.safetensors", "checkpoint/.state-all-000001.safetensors.9"),
    *("logs/sampler-7.log", "wandb/run-1/files/config.yaml", "notes/deep/er.txt"),
)


# --- runs -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(module_spreeze: Spreeze) -> Path:
    """A finished run, with what a stranger may add to it."""
    settings = {"max_env_steps": 1200, "eval_episodes": 1, "checkpoint_interval_s": 300, "env_module": None}
    ended = module_spreeze.train("Pendulum-v1", **settings)
    assert ended.returncode == 0, ended.stderr
    run = module_spreeze.run_dir
    for name in ADDED_FILES:
        path = run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}\n")
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def outside(finished: Path, tmp_path: Path) -> Path:
    """The same names elsewhere, with contents of their own."""
    folder = Path(shutil.copytree(finished, tmp_path / "outside"))
    for path in folder.rglob("*"):
        if path.suffix == ".safetensors" and path.name.startswith("policy") and path.stat().st_size > 10:
            tensors, about = read_weights(path)
            write_weights(path, tensors, {**about, "version": str(MARK)})
        elif path.name == "config.json":
            path.write_text(json.dumps({**json.loads(path.read_text()), "env": f"Outside-{MARK}"}))
        elif path.is_file():
            path.write_text(json.dumps(OUTSIDE_LINE) + "\n" + '{"half of a line')
    return folder


Entry = tuple[int, int, bytes | str]


def snapshot(folder: Path) -> dict[str, Entry]:
    """Return kind, time and content of a folder and of everything in it, without following links."""
    found: dict[str, Entry] = {}
    for path in (folder, *folder.rglob("*")):
        status, content = path.lstat(), b""
        if stat.S_ISLNK(status.st_mode):
            content = os.fsencode(path.readlink())
        elif stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        found[str(path.relative_to(folder))] = stat.S_IFMT(status.st_mode), status.st_mtime_ns, content
    return found


# --- what a stranger puts in the place of an entry --------------------------------------------------------------

Put = Callable[[Path, Path], None]
"""Puts something at a path; the second path is its counterpart outside."""


def _socket(path: Path, _: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path.name)
    os.chdir(before)


def _device(path: Path, _: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))


def _link_to_a_file(path: Path, counterpart: Path) -> None:
    path.symlink_to(counterpart if counterpart.is_file() else counterpart.parents[0] / "config.json")


def _link_to_a_folder(path: Path, counterpart: Path) -> None:
    path.symlink_to(os.path.relpath(counterpart if counterpart.is_dir() else counterpart.parent, path.parent))


KINDS: dict[str, Put] = {
    "a link to a file": _link_to_a_file,
    "a link to a folder": _link_to_a_folder,
    "a link to nothing": lambda path, counterpart: path.symlink_to(counterpart.with_name("missing")),
    "a link to itself": lambda path, _: path.symlink_to(path.name),
    "a hard link": lambda path, counterpart: os.link(counterpart, path),
    "a pipe": lambda path, _: os.mkfifo(path),
    "a socket": _socket,
    "a device": _device,
    "a folder": lambda path, _: path.mkdir(),
    "a file": lambda path, _: path.touch(),
}


def is_known_file(name: str) -> bool:
    return any(fnmatchcase(Path(name).name, pattern) for pattern in FILES.get(str(Path(name).parent), ()))


def places(run: Path, kind: str) -> list[str]:
    """Return the names at which a kind of entry is to be refused."""
    entries = {str(path.relative_to(run)): path.is_dir() for path in sorted(run.rglob("*"))}
    if kind == "a hard link":
        return [name for name, is_folder in entries.items() if not is_folder]
    if kind == "a folder":  # in the place of a file that Spreeze uses: elsewhere it does no harm
        return [name for name in entries if is_known_file(name)]
    return [name for name in entries if name in FOLDERS] if kind == "a file" else list(entries)


@contextlib.contextmanager
def replaced(run: Path, name: str, kind: str, outside: Path) -> Iterator[None]:
    """Put something else in the place of an entry, within the block."""
    path, kept = run / name, run.parent / "kept"
    path.rename(kept)
    KINDS[kind](path, outside / name)
    yield
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    kept.rename(path)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "a device" and os.geteuid() != 0:
        pytest.skip("only root may make devices")
    return str(request.param)


# --- commands ---------------------------------------------------------------------------------------------------


def see_dashboard(run: Path) -> str:
    runs = Runs([run])
    seen = [str(runs.entries), str(find_runs([run.parent]))]
    for entry in runs.entries:
        opened = runs.run(entry.run_id)
        opened.refresh()
        view = RunView(opened.reader, "")
        seen += [str(getattr(view, name)) for name in dir(view) if not name.startswith("_")]
        seen += [str(lines.all()) for lines in (opened.reader.metrics, opened.reader.evaluations)]
    return " ".join(seen)


def see_policy(run: Path) -> str:
    policy = load_policy(run)
    return f"{policy.version} {policy(np.zeros(3, np.float32))}"


def see_export(run: Path) -> str:
    out = run.parent / "exported.safetensors"
    try:
        export_policy(run, out)
        return str(load_policy(out).version)
    finally:
        out.unlink(missing_ok=True)


def see_checkpoints(run: Path) -> str:
    return str(newest_checkpoints(run / "checkpoint"))


READERS: dict[str, Callable[[Path], str]] = {
    "dashboard": see_dashboard,
    "plot": lambda run: str(read_run(run)),
    "load_policy": see_policy,
    "export": see_export,
    "watch": lambda run: str(PolicySource(run, WatchRequest()).policy().version),
    "checkpoints": see_checkpoints,
}


def refusal(use: Callable[[], object]) -> str | None:
    """Return the line with which something is refused, None if it is not."""
    refused: SpreezeError | None = None
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            use()
    except SpreezeError as error:
        refused = error
    if refused is None:
        return None
    assert refused.exit_code == 2, refused
    assert "\n" not in str(refused)
    return str(refused)


def resume_until(run: Path, max_env_steps: int) -> str | None:
    request = ResumeRequest(run, {"max_env_steps": max_env_steps}, {"quiet": True})
    return refusal(lambda: resume_run(request, time.monotonic()))


def resume(run: Path) -> str | None:
    return resume_until(run, 1300)


# --- nothing outside is touched ---------------------------------------------------------------------------------


def test_resume_refuses_every_foreign_entry_and_changes_nothing(run: Path, outside: Path, kind: str) -> None:
    found = places(run, kind)
    assert len(found) >= len(FOLDERS), found
    for name in found:
        with replaced(run, name, kind, outside):
            before = snapshot(run), snapshot(outside)
            line = resume(run)
            assert line is not None, f"{kind} at {name} was not refused"
            assert str(run / name) in line
            assert ": " in line, "it says what to do"
            assert (snapshot(run), snapshot(outside)) == before, name
    assert require_own_entries(run) is None  # without them it is accepted


def test_readers_show_nothing_from_outside_and_change_nothing(run: Path, outside: Path, kind: str) -> None:
    for name in places(run, kind):
        with replaced(run, name, kind, outside):
            before = snapshot(run), snapshot(outside)
            for reader, see in READERS.items():
                shown: list[str] = []
                line = refusal(lambda see=see, shown=shown: shown.append(see(run)))  # type: ignore[misc]
                if kind != "a hard link":  # nobody can tell the content of a file by its other names
                    assert str(MARK) not in "".join(shown), (reader, name)
                assert line is None or "Outside" not in line, (reader, name)
            assert (snapshot(run), snapshot(outside)) == before, name


@pytest.mark.parametrize("name", ["config.json", "best/policy.safetensors", "best"])
def test_evaluate_does_not_follow_links(run: Path, outside: Path, name: str) -> None:
    assert refusal(lambda: evaluate_run(run, 1, 0, None)) is None
    with replaced(run, name, "a link to a folder" if name == "best" else "a link to a file", outside):
        line = refusal(lambda: evaluate_run(run, 1, 0, None))
    assert line is not None
    assert f"{Path(name).name} is a symbolic link" in line or "it is a symbolic link" in line


@pytest.mark.parametrize("name", ["lock", "logs", "weights", "best", "logs/learner.log"])
def test_a_new_run_refuses_a_folder_with_links(tmp_path: Path, outside: Path, name: str) -> None:
    path = tmp_path / "new"
    (path / name).parent.mkdir(parents=True)
    (path / name).symlink_to(outside / name)
    before = snapshot(path), snapshot(outside)
    line = refusal(lambda: RunFolder.create(Config("Pendulum-v1").replace(run_dir=str(path))))
    assert line is not None
    assert f"{path / name} is a symbolic link" in line
    assert (snapshot(path), snapshot(outside)) == before


# --- what is put there while a run is under way -----------------------------------------------------------------


def _publish(run: Path) -> None:
    WeightsChannel(run / "weights").writer().publish({}, {})


def _go_back(run: Path) -> None:
    channel = WeightsChannel(run / "weights")
    channel.resume_from_newest()
    channel.go_back_to(0)


def _journal(run: Path) -> None:
    writer = JournalWriter(run / "metrics.jsonl", 1 << 20, 10)
    writer.add(b'{"wall_s": 1}\n')
    writer.write()


def _best(run: Path) -> None:
    best = Best(run / "best")
    assert best.mean_return != MARK
    evaluation = Evaluation(1.0, 1, 1, 1, 1e9, 0.0, (1e9,), (1,))
    assert best.offer(WeightsFile({}, {}, 1, 0.0), evaluation) is not None


def _print(run: Path) -> None:
    with os.fdopen(open_log(run / "logs" / "learner.log"), "w") as log:
        log.write("printed")


WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "weights": ("weights", _publish),
    "go back": ("weights", _go_back),
    "journal": ("metrics.jsonl", _journal),
    "best": ("best", _best),
    "log": ("logs/learner.log", _print),
    "logs": ("logs", _print),
    "trim a log": ("logs/learner.log", lambda run: trim_logs(run / "logs")),
    "trim logs": ("logs", lambda run: trim_logs(run / "logs")),
    "replay": ("checkpoint/replay", lambda run: ReplayLog(run / "checkpoint" / "replay", 4)),
    "replay in checkpoint": ("checkpoint", lambda run: ReplayLog(run / "checkpoint" / "replay", 4)),
    "manifest": ("checkpoint", lambda run: write_manifest(run / "checkpoint", Manifest(9, (), (), 0, {}))),
    "tensorboard": ("tensorboard", lambda run: EventFile.in_folder(run / "tensorboard")),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_writers_of_a_run_do_not_follow_a_link_that_comes_later(run: Path, outside: Path, writer: str) -> None:
    name, write = WRITERS[writer]
    if writer.startswith("trim"):
        os.truncate(outside / "logs" / "learner.log", 2 * MAX_LOG_BYTES)
    with replaced(run, name, "a link to a folder" if (outside / name).is_dir() else "a link to a file", outside):
        before = snapshot(outside)
        with contextlib.suppress(OSError):
            write(run)
        assert snapshot(outside) == before


# --- what is the user's, and stays allowed ----------------------------------------------------------------------


def test_spreeze_knows_the_names_of_all_that_a_run_leaves(finished: Path) -> None:
    added = {Path(name) for name in ADDED_FILES}
    added |= {parent for path in added for parent in path.parents}
    for path in finished.rglob("*"):
        name = path.relative_to(finished)
        if name not in added:
            assert str(name) in FOLDERS if path.is_dir() else is_known_file(str(name)), name
        assert path.lstat().st_nlink == 1 or path.is_dir(), f"Spreeze makes no hard links: {name}"


def test_links_that_weights_and_biases_makes_are_its_own(run: Path) -> None:
    link, log = run / "wandb" / "latest-run", run / "wandb" / "run-1" / "logs" / "debug-core.log"
    link.symlink_to("run-1")
    log.parent.mkdir()
    log.symlink_to("/somewhere/.cache/wandb/logs/core-debug.log")
    require_own_entries(run)
    for target in ("../..", "/etc", "run-1/../.."):
        link.unlink()
        link.symlink_to(target)
        with pytest.raises(RunFolderError, match="latest-run is a symbolic link"):
            require_own_entries(run)
    link.unlink()
    (run / "wandb" / "run-1" / "link").symlink_to("files")
    with pytest.raises(RunFolderError, match="run-1/link is a symbolic link"):
        require_own_entries(run)


def test_a_name_with_control_characters_is_shown_without_them(run: Path) -> None:
    (run / "no\n\x1b[31mtes").symlink_to("/etc")
    with pytest.raises(RunFolderError, match=r"no\?\?\[31mtes is a symbolic link"):
        require_own_entries(run)


def test_a_run_that_is_reached_through_a_link_is_used(run: Path, spreeze: Spreeze) -> None:
    (spreeze.folder / "latest").symlink_to(run)
    assert load_policy(spreeze.folder / "latest").version == load_policy(run).version
    (spreeze.folder / "policy.safetensors").symlink_to(run / "best" / "policy.safetensors")
    assert load_policy(spreeze.folder / "policy.safetensors").version == load_policy(run).version
    assert read_run(spreeze.folder / "latest").env == "Pendulum-v1"
    resumed = spreeze("resume", "latest", "--max-env-steps", 1500, "--quiet")
    assert resumed.returncode == 0, resumed.stderr
    assert spreeze.read("summary.json", run)["env_steps"] == 1500
    assert not (run / ".summary.json.123").exists()  # what was only half written is removed


# --- the command line -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lock", "logs"])
def test_the_command_refuses_in_one_line(run: Path, outside: Path, spreeze: Spreeze, name: str) -> None:
    kind = "a link to a folder" if name == "logs" else "a link to a file"
    with replaced(run, name, kind, outside):
        before = snapshot(run), snapshot(outside)
        ended = spreeze("resume", run, "--max-env-steps", 1300)
        assert (ended.returncode, ended.stdout) == (2, "")
        (line,) = ended.stderr.splitlines()
        assert line.startswith(f"spreeze: {run / name} is a symbolic link, and none is followed in a run folder: ")
        assert (snapshot(run), snapshot(outside)) == before


def _without_checkpoints(run: Path) -> None:
    shutil.rmtree(run / "checkpoint")
    shutil.rmtree(run / "best")


def _with_other_actions(run: Path) -> None:
    newest = newest_checkpoints(run / "checkpoint")[0]
    environment = newest.progress["environment"]
    other = {**environment, "action": {**environment["action"], "high": 3.0}}
    write_manifest(run / "checkpoint", replace(newest, progress={**newest.progress, "environment": other}))


REFUSED: dict[str, tuple[Callable[[Path], object], int, str]] = {
    "no checkpoint": (_without_checkpoints, 1300, "has no checkpoint to resume from"),
    "a limit": (lambda _: None, 1000, "was reached before"),
    "another environment": (_with_other_actions, 1300, "action high was 3.0 and is 2.0 now"),
}


@pytest.mark.parametrize("has_lock", [True, False], ids=["a lock of a killed run", "no lock"])
@pytest.mark.parametrize("reason", REFUSED)
def test_resume_that_is_refused_for_another_reason_changes_nothing(run: Path, reason: str, has_lock: bool) -> None:
    change, limit, words = REFUSED[reason]
    if not has_lock:
        (run / "lock").unlink()
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"half of a line')
    change(run)
    before = snapshot(run)
    line = resume_until(run, limit)
    assert line is not None
    assert words in line
    assert snapshot(run) == before


def test_resume_refuses_a_run_that_was_continued_while_it_looked(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = newest_checkpoints(run / "checkpoint")[0]
    look = resume_module.find_facts_before_run

    def continued_meanwhile(*arguments: Any) -> Any:
        wall_s = newest.progress["wall_s"] + 100.0
        write_manifest(run / "checkpoint", replace(newest, progress={**newest.progress, "wall_s": wall_s}))
        return look(*arguments)

    monkeypatch.setattr(resume_module, "find_facts_before_run", continued_meanwhile)
    line = resume(run)
    assert line is not None
    assert "was continued by somebody else meanwhile: resume it again" in line
    assert not (run / "lock").exists()
