from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from spreeze.config import Config
from spreeze.errors import RunFolderError, UsageError
from spreeze.run_folder import RunFolder, read_run_config


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
    assert {path.name for path in folder.path.iterdir()} >= {"weights", "best", "logs"}
    assert all(path.is_dir() for path in folder.path.iterdir())


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
    folder = RunFolder.create(Config(env))
    assert folder.path.parent == Path("runs")
    assert re.fullmatch(rf".*{named}-sac-[\w-]+", folder.path.name)
    assert (tmp_path / folder.path / "weights").is_dir()


def test_folder_with_a_run_in_it_is_refused(tmp_path: Path) -> None:
    folder = RunFolder.create(config_for(tmp_path / "run"))
    folder.write("config.json", Config("Pendulum-v1").flat())
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
    ],
)
def test_damaged_config_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(UsageError) as raised:
        read_run_config(tmp_path)
    assert str(raised.value)
    assert "\n" not in str(raised.value)


def test_folder_without_a_config_is_no_run(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "elsewhere"):
        with pytest.raises(RunFolderError, match="not a run folder"):
            read_run_config(path)
