"""A link that was put into a run folder after it was looked at is not followed either."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from spreeze.host.files import read_bounded, write_together, write_whole, write_with_folders
from spreeze.host.own_files import (
    create_own,
    is_own_file,
    list_own,
    make_own_folder,
    open_own,
    remove_own,
    remove_own_folder,
    replace_own,
    stat_own,
    sync_own_folder,
)

Use = Callable[[Path, Path], object]
"""Of a file, in a run folder."""

READ_AND_WRITE: dict[str, Use] = {
    "read": open_own,
    "append": lambda path, root: open_own(path, root, os.O_WRONLY | os.O_APPEND | os.O_CREAT),
    "repair": lambda path, root: open_own(path, root, os.O_RDWR),
    "look at": stat_own,
    "load": lambda path, root: read_bounded(path, 1000, root),
}
IN_FOLDER: dict[str, Use] = {
    **READ_AND_WRITE,
    "create": create_own,
    "replace": lambda path, root: replace_own(path.with_name("other"), path, root),
    "remove": remove_own,
    "write": lambda path, root: write_whole(path, b"new", root),
    "write together": lambda path, root: write_together({path: b"new", path.with_name("other"): b"new"}, root),
    "write with folders": lambda path, root: write_with_folders({path: b"new"}, root),
    "list": lambda path, root: list_own(path.parent, root),
    "make a folder": lambda path, root: make_own_folder(path.parent, root),
    "sync": lambda path, root: sync_own_folder(path.parent, root),
}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    for name in ("file", "other"):
        (folder / name).write_text("precious")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A run folder that is reached through a link: that one is the user's."""
    (tmp_path / "real").mkdir()
    (tmp_path / "run").symlink_to("real")
    return tmp_path / "run"


def contents(folder: Path) -> dict[str, tuple[str, int]]:
    return {path.name: (path.read_text(), path.stat().st_mtime_ns) for path in folder.iterdir()}


@pytest.mark.parametrize("use", READ_AND_WRITE)
@pytest.mark.parametrize("target", ["outside/file", "outside/missing", "outside", "/dev/zero"])
def test_a_file_that_is_a_link_is_refused(tmp_path: Path, outside: Path, root: Path, use: str, target: str) -> None:
    (root / "file").symlink_to(tmp_path / target)
    before = contents(outside)
    with pytest.raises(OSError, match="it is a symbolic link"):
        READ_AND_WRITE[use](root / "file", root)
    assert contents(outside) == before


@pytest.mark.parametrize("use", IN_FOLDER)
@pytest.mark.parametrize("depth", [1, 2])
def test_a_folder_that_is_a_link_is_refused(outside: Path, root: Path, use: str, depth: int) -> None:
    inner = outside
    if depth == 2:
        inner = outside / "inner"
        inner.mkdir()
        for path in (outside / "file", outside / "other"):
            path.rename(inner / path.name)
    (root / "folder").symlink_to(outside)
    before = contents(inner)
    with pytest.raises(OSError, match="folder is a symbolic link, not a folder"):
        IN_FOLDER[use](root / "folder" / inner.relative_to(outside) / "file", root)
    assert contents(inner) == before


@pytest.mark.parametrize("use", ["create", "write", "write together", "remove"])
def test_a_link_is_replaced_or_removed_and_its_target_is_not(outside: Path, root: Path, use: str) -> None:
    (root / "file").symlink_to(outside / "file")
    (root / f".file.{os.getpid()}").symlink_to(outside / "other")  # where the file is written first
    before = contents(outside)
    IN_FOLDER[use](root / "file", root)
    assert contents(outside) == before
    assert not (root / "file").is_symlink()


def test_a_whole_folder_is_removed_without_what_its_links_lead_to(outside: Path, root: Path) -> None:
    (root / "folder").symlink_to(outside)
    before = contents(outside)
    remove_own_folder(root / "folder", root)
    (root / "kept").mkdir()
    (root / "kept" / "link").symlink_to(outside)
    remove_own_folder(root / "kept", root)
    assert contents(outside) == before
    assert [path.name for path in root.iterdir()] == ["folder"]


def test_a_hard_link_is_read_and_not_written(outside: Path, root: Path) -> None:
    os.link(outside / "file", root / "file")
    assert read_bounded(root / "file", 10, root) == b"precious"
    for use in ("append", "repair"):
        with pytest.raises(OSError, match="it is a hard link"):
            READ_AND_WRITE[use](root / "file", root)
    assert (outside / "file").read_text() == "precious"


@pytest.mark.parametrize("use", READ_AND_WRITE)
def test_a_pipe_or_a_device_is_refused_at_once(root: Path, use: str) -> None:
    os.mkfifo(root / "file")
    with pytest.raises(OSError, match="it is a named pipe, not a regular file"):
        READ_AND_WRITE[use](root / "file", root)
    with pytest.raises(OSError, match="it is a device, not a regular file"):
        READ_AND_WRITE[use](Path("/dev/null"), Path("/dev"))


def test_no_path_leads_out(tmp_path: Path, outside: Path) -> None:
    assert outside.is_dir()
    (tmp_path / "run" / "folder").mkdir(parents=True)
    with pytest.raises(OSError, match="leads out of the run folder"):
        open_own(tmp_path / "run" / "folder" / ".." / ".." / "outside" / "file", tmp_path / "run")
    with pytest.raises(ValueError, match="is not in the subpath"):
        open_own(outside / "file", tmp_path / "run")


def test_what_lies_in_a_folder_is_listed_by_name(root: Path) -> None:
    for name in ("b-2", "b-1", "c"):
        make_own_folder(root / "new" / "inner", root)
        (root / "new" / "inner" / name).write_text("")
    assert list_own(root / "new" / "inner", root, "b-*") == [root / "new" / "inner" / name for name in ("b-1", "b-2")]
    assert list_own(root / "nowhere", root) == []
    assert is_own_file(root / "new" / "inner" / "c", root)
    assert not is_own_file(root / "new" / "inner", root)


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY | os.O_CREAT])
@pytest.mark.parametrize("in_its_place", ["a link", "a hard link", "a pipe"])
def test_what_is_swapped_between_the_look_and_the_opening_is_refused(
    outside: Path, root: Path, monkeypatch: pytest.MonkeyPatch, flags: int, in_its_place: str
) -> None:
    path, look = root / "file", os.stat
    path.write_text("mine")

    def look_then_swap(*args: object, **options: object) -> os.stat_result:
        monkeypatch.undo()
        status = look(*args, **options)  # type: ignore[arg-type]
        path.unlink()
        if in_its_place == "a link":
            path.symlink_to(outside / "file")
        elif in_its_place == "a hard link":
            os.link(outside / "file", path)
        else:
            os.mkfifo(path)
        return status

    monkeypatch.setattr(os, "stat", look_then_swap)
    if in_its_place == "a hard link" and flags == os.O_RDONLY:
        os.close(open_own(path, root, flags))
    else:
        with pytest.raises(OSError, match=r"symbolic links|hard link|named pipe|No such device"):
            open_own(path, root, flags)
    assert (outside / "file").read_text() == "precious"
