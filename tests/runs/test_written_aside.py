"""What a killed process was writing is deleted, and nothing else."""

from __future__ import annotations

from pathlib import Path

from spreeze.runs.written_aside import FOLDERS, remove_written_aside


def test_only_what_was_begun_by_a_process_is_deleted(tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    outside.mkdir()
    (outside / ".policy-000001.safetensors.1").touch()
    kept = ["policy-000001.safetensors", ".policy-000001.safetensors.part", ".keep", ".12"]
    for folder in FOLDERS[:-1]:
        (run / folder).mkdir(parents=True)
        for name in (*kept, ".policy-000001.safetensors.4711"):
            (run / folder / name).touch()
        (run / folder / ".link.safetensors.12").symlink_to(outside / ".policy-000001.safetensors.1")
    (run / FOLDERS[-1]).parent.mkdir(exist_ok=True)
    (run / FOLDERS[-1]).symlink_to(outside)

    remove_written_aside(run)

    for folder in FOLDERS[:-1]:
        assert {path.name for path in (run / folder).iterdir()} == {*kept, ".link.safetensors.12"}
    assert [path.name for path in outside.iterdir()] == [".policy-000001.safetensors.1"]
