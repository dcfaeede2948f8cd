"""Files of a run are opened, listed and removed by `host/own_files.py` alone, which follows no link in its folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import spreeze

SOURCE = Path(spreeze.__file__).parent
ROOMS = ("channels", "policy", "runs", "sampling", "learning", "evaluation", "views", "supervision")
DIRECT = frozenset(
    (
        *("open", "touch", "unlink", "remove", "truncate", "rename", "mkdir", "makedirs", "rmdir", "rmtree", "move"),
        *("glob", "rglob", "iterdir", "scandir", "listdir", "walk", "fwalk", "copyfile", "copytree", "chmod"),
        *("read_text", "read_bytes", "write_text", "write_bytes", "symlink_to", "hardlink_to", "link", "symlink"),
    )
)
ALLOWED = {
    "runs/run_folder.py": {"path.open", "folder.rmdir"},  # the file of --config; the run folder itself, and above
    "runs/folder_check.py": {"os.scandir"},  # through a descriptor
    "views/dashboard/runs.py": {"root.iterdir"},  # a folder of run folders
    "views/dashboard/page.py": {"(Path(__file__).parent / 'style.css').read_text"},
    "views/dashboard/command.py": {"webbrowser.open"},
    "views/dashboard/process.py": {"webbrowser.open"},
    "views/watch.py": {"webbrowser.open"},
    "views/panel.py": {"lines[-1].truncate"},  # a line of text
    "views/tensorboard.py": {"self._file.truncate"},  # open already
    "views/trackers.py": {"self._trackers.remove"},  # a list
    "views/video.py": {"av.open"},  # open already
    # A temporary folder of its own, before there is a run folder to write to.
    "supervision/facts.py": {"child.log_path.open", "logs.mkdir"},
    "supervision/placement.py": {"os.listdir"},  # /proc
    "supervision/visualisation.py": {"self._workers.channels.listener.open"},  # a socket
    "supervision/workers.py": {"self._optional.remove"},  # a list
}


def direct_calls(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in DIRECT:
                yield ast.unparse(node.func)


def test_files_of_a_run_are_opened_in_one_place() -> None:
    found = {}
    for room in ROOMS:
        for path in sorted((SOURCE / room).rglob("*.py")):
            name = str(path.relative_to(SOURCE))
            if calls := set(direct_calls(path.read_text())) - ALLOWED.get(name, set()):
                found[name] = calls
    assert not found, "use the functions of host/own_files.py for what lies in a run folder"
