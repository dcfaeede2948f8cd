from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spreeze.config import Config
from spreeze.errors import RunFolderError, UsageError
from spreeze.host import write_failures
from spreeze.runs import run_folder
from spreeze.runs.run_folder import RunFolder, read_config_file, read_run_config

if TYPE_CHECKING:
    from conftest import DeletedOnce, FullDisk


def config_for(path: Path | str) -> Config:
    return Config("Pendulum-v1").replace(run_dir=str(path))


def refusal(path: Path | str) -> str:
    """The message with which a folder is refused: one line that names it."""
    with pytest.raises(RunFolderError) as raised:
        RunFolder.create(config_for(path))
    message = str(raised.value)
    assert "\n" not in message
    assert message.startswith("--run-dir")
    return message


# --- creating ---------------------------------------------------------------------------------------------------


def test_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    folder = RunFolder.create(config_for(tmp_path / "a" / "b"))
    assert folder.path == tmp_path / "a" / "b"
    assert {path.name for path in folder.path.iterdir() if path.is_dir()} == {"weights", "best", "logs"}
    assert {path.name for path in folder.path.iterdir() if path.is_file()} == {"lock"}


def test_empty_folder_may_be_used(tmp_path: Path) -> None:
    assert (RunFolder.create(config_for(tmp_path)).path / "weights").is_dir()


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ("Pendulum-v1", "Pendulum-v1"),
        ("ALE/Pong-v5", "Pong-v5"),
        ("package.module:Robot/Arm-v0", "Arm-v0"),
        ("main.<locals>.<lambda>", "lambda"),
    ],
)
def test_folder_is_named_after_environment_and_algorithm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: str, named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = RunFolder.create(Config(env, "sac"))
    assert folder.path.parent == tmp_path / "runs"
    assert re.fullmatch(rf".*{named}-sac-[\w-]+", folder.path.name)
    assert (folder.path / "weights").is_dir()


def test_folder_with_a_run_in_it_is_refused(tmp_path: Path) -> None:
    folder = RunFolder.create(config_for(tmp_path / "run"))
    folder.write("config.json", Config("Pendulum-v1").flat())
    folder.close()
    message = refusal(tmp_path / "run")
    assert str(tmp_path / "run") in message
    assert "already holds a run" in message


def test_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    assert "not empty" in refusal(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    assert "is a file" in refusal(tmp_path / "file")
    assert "cannot be created" in refusal(tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "precious"


def test_name_that_no_folder_can_have_is_refused(tmp_path: Path) -> None:
    assert "--run-dir" in refusal(tmp_path / ("a" * 300))


def test_folder_where_nothing_can_be_written_is_refused() -> None:
    assert "cannot be created" in refusal("/proc/spreeze-run")


# --- files ------------------------------------------------------------------------------------------------------


def test_journal_grows_by_whole_lines(tmp_path: Path) -> None:
    folder = RunFolder.create(config_for(tmp_path / "run"))
    lines: list[dict[str, Any]] = [
        {"wall_s": 0.5, "kind": "choice", "reason": "ümlaut\nand newline"},
        {"wall_s": 1.5, "value": None},
    ]
    for count, line in enumerate(lines, 1):
        folder.append("events", line)
        text = (folder.path / "events.jsonl").read_text()
        assert text.endswith("\n")
        assert [json.loads(one) for one in text.splitlines()] == lines[:count]


def test_journals_are_apart(tmp_path: Path) -> None:
    folder = RunFolder.create(config_for(tmp_path / "run"))
    folder.append("metrics", {"a": 1})
    folder.append("evaluations", {"b": 2})
    assert json.loads((folder.path / "metrics.jsonl").read_text()) == {"a": 1}
    assert json.loads((folder.path / "evaluations.jsonl").read_text()) == {"b": 2}


def test_file_is_replaced_whole(tmp_path: Path) -> None:
    folder = RunFolder.create(config_for(tmp_path / "run"))
    before = set(folder.path.iterdir())
    folder.write("summary.json", {"updates": 1, "more": "x" * 1000})
    folder.write("summary.json", {"updates": 2})
    assert json.loads((folder.path / "summary.json").read_text()) == {"updates": 2}
    assert set(folder.path.iterdir()) - before == {folder.path / "summary.json"}


def test_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    folder = RunFolder.create(config_for(tmp_path / "run"))
    folder.write("summary.json", {"updates": 1})
    before = set(folder.path.iterdir())
    with pytest.raises(TypeError):
        folder.write("summary.json", {"updates": object()})
    assert json.loads((folder.path / "summary.json").read_text()) == {"updates": 1}
    assert set(folder.path.iterdir()) == before


# --- disks that fail ---------------------------------------------------------------------------------------------


def test_what_a_full_disk_does_not_take_is_written_when_there_is_room(
    tmp_path: Path, full_disk: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.create(config_for(tmp_path / "run"))
    folder.append("metrics", {"wall_s": 0})
    with full_disk():
        for wall_s in (1, 2, 3):
            folder.append("metrics", {"wall_s": wall_s})
            folder.append("evaluations", {"wall_s": wall_s})
        folder.write("summary.json", {"updates": 1})
        said = folder.turn()
        assert folder.turn() == []
    assert said == [
        f"the run folder {tmp_path / 'run'} cannot be written (File too large): "
        "the run continues, and its data waits in memory"
    ]
    assert not (folder.path / "summary.json").exists()
    folder.append("metrics", {"wall_s": 4})
    assert folder.turn() == []  # it may be full again at once
    monkeypatch.setattr(write_failures, "QUIET_S", 0.0)
    monkeypatch.setattr(run_folder, "TURN_S", 0.0)
    assert folder.turn() == [f"the run folder {tmp_path / 'run'} can be written again"]
    assert folder.turn() == []
    lines = (folder.path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["wall_s"] for line in lines] == [0, 1, 2, 3, 4]
    assert len((folder.path / "evaluations.jsonl").read_text().splitlines()) == 3
    assert json.loads((folder.path / "summary.json").read_text()) == {"updates": 1}
    assert folder.close() is None
    assert not list(folder.path.glob(".*"))


def test_metrics_are_dropped_before_evaluations_and_their_loss_is_said(
    tmp_path: Path, full_disk: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "WAITING_BYTES", {"events": 1000, "evaluations": 1000, "metrics": 100})
    monkeypatch.setattr(write_failures, "QUIET_S", 0.0)
    folder = RunFolder.create(config_for(tmp_path / "run"))
    with full_disk():
        for wall_s in range(10, 60):
            folder.append("metrics", {"wall_s": wall_s})
            folder.append("evaluations", {"wall_s": wall_s})
        folder.turn()
    folder.append("events", {"wall_s": 60})
    assert folder.turn() == [
        f"the run folder {tmp_path / 'run'} can be written again; 44 lines of its journals are lost"
    ]
    metrics = [json.loads(line)["wall_s"] for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    assert metrics == list(range(54, 60))
    assert len((folder.path / "evaluations.jsonl").read_text().splitlines()) == 50


def test_what_is_lost_at_the_end_is_named(tmp_path: Path, full_disk: FullDisk) -> None:
    folder = RunFolder.create(config_for(tmp_path / "run"))
    with full_disk():
        folder.append("events", {"wall_s": 1})
        folder.write("summary.json", {"updates": 1})
        lost = folder.close()
    assert lost == f"{tmp_path / 'run'} lacks summary.json and 1 lines of its journals (File too large): make room"
    assert not (folder.path / "lock").exists()


def test_one_file_in_the_way_holds_up_no_other(tmp_path: Path) -> None:
    folder = RunFolder.create(config_for(tmp_path / "run"))
    (folder.path / "events.jsonl").mkdir()
    folder.append("events", {"wall_s": 1})
    folder.append("metrics", {"wall_s": 1})
    folder.write("summary.json", {"updates": 1})
    assert (folder.path / "metrics.jsonl").read_text() == '{"wall_s": 1}\n'
    assert (folder.path / "summary.json").exists()
    assert len(folder.turn()) == 1


def test_a_deleted_folder_is_made_anew(tmp_path: Path) -> None:
    folder = RunFolder.create(config_for(tmp_path / "runs" / "run"))
    folder.write("config.json", Config("Pendulum-v1").flat())
    shutil.rmtree(tmp_path / "runs")
    folder.append("metrics", {"wall_s": 1})
    assert folder.turn() == [
        f"the run folder {folder.path} was deleted: it was created again, without its previous contents"
    ]
    assert folder.turn() == []
    assert read_run_config(folder.path) == Config("Pendulum-v1")
    assert {path.name for path in folder.path.iterdir()} == {
        *("weights", "best", "logs", "lock", "config.json", "metrics.jsonl"),
    }
    assert folder.close() is None


def test_a_folder_that_is_deleted_while_it_is_written_to_is_made_anew(
    tmp_path: Path, deleted_once: DeletedOnce
) -> None:
    folder = RunFolder.create(config_for(tmp_path / "run"))
    folder.write("config.json", Config("Pendulum-v1").flat())
    deleted_once(folder.path)
    folder.write("summary.json", {"updates": 1})
    assert folder.turn() == [
        f"the run folder {folder.path} was deleted: it was created again, without its previous contents"
    ]
    assert {path.name for path in folder.path.iterdir() if path.is_file()} == {"lock", "config.json", "summary.json"}
    assert folder.close() is None


def test_a_disk_without_room_for_a_run_is_refused_at_the_start(tmp_path: Path, full_disk: FullDisk) -> None:
    with full_disk():
        assert "cannot be created (File too large)" in refusal(tmp_path / "run")


def test_discarded_folder_is_gone_with_the_parents_it_needed(tmp_path: Path) -> None:
    folder = RunFolder.create(config_for(tmp_path / "runs" / "run"))
    folder.append("events", {"a": 1})
    folder.discard()
    assert list(tmp_path.iterdir()) == []


def test_discarding_leaves_what_was_there_before(tmp_path: Path) -> None:
    other = RunFolder.create(config_for(tmp_path / "runs" / "other"))
    (tmp_path / "runs" / "run").mkdir()
    RunFolder.create(config_for(tmp_path / "runs" / "run")).discard()
    assert list((tmp_path / "runs" / "run").iterdir()) == []  # empty, as the user made it
    assert (other.path / "weights").is_dir()


def test_discarding_leaves_a_run_that_has_moved_in_beside_it(tmp_path: Path) -> None:
    folder = RunFolder.create(config_for(tmp_path / "runs" / "run"))
    other = RunFolder.create(config_for(tmp_path / "runs" / "other"))
    folder.discard()
    assert not folder.path.exists()
    assert (other.path / "weights").is_dir()


# --- reading a run's config -------------------------------------------------------------------------------------


def test_config_of_a_run_is_read_back(tmp_path: Path) -> None:
    config = config_for(tmp_path / "run").replace(
        hidden=(8, 4), seed=3, samplers=2, max_seconds=5, env_kwargs={"g": 1.5}
    )
    folder = RunFolder.create(config)
    folder.write("config.json", config.flat())
    assert read_run_config(folder.path) == config


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b'"text"',
        b"null",
        b"{}",
        b"\xff\xfe",
        b'{"env": ""}',
        b'{"env": 5}',
        b'{"env": "Pendulum-v1", "batch_size": "many"}',
        b'{"env": "Pendulum-v1", "no_such_setting": 1}',
        b'{"env": "Pendulum-v1", "no\x7fsuch\xc2\x9bsetting": 1}',
        b'{"env": "Pendulum-v1", "learning_rate": 1' + b"0" * 400 + b"}",
        b'{"env": "Pendulum-v1", "hidden": ' + b"[" * 100_000,
        b'{"env": "Pendulum-v1", "hidden": ' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"env": "Pendulum-v1", "env_kwargs": "' + b"[" * 100_000 + b'"}',
        b'{"env": "Pendulum-v1", "algo": 0}',
        b'{"env": "Pendulum-v1", "algo": "' + b"x" * 100_000 + b'"}',
    ],
    ids=lambda content: repr(content[:60]),
)
def test_damaged_config_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(UsageError) as raised:
        read_run_config(tmp_path)
    assert 0 < len(str(raised.value)) < 1000
    assert str(raised.value).isprintable()
    if content not in (b"{}", b'{"env": ""}', b'{"env": 5}'):  # the command line may name the environment
        with pytest.raises(UsageError) as raised_by_flag:
            read_config_file(tmp_path / "config.json")
        assert 0 < len(str(raised_by_flag.value)) < 1000
        assert "\n" not in str(raised_by_flag.value)


def test_folder_without_a_config_is_no_run(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "elsewhere"):
        with pytest.raises(RunFolderError, match="not a run folder"):
            read_run_config(path)
