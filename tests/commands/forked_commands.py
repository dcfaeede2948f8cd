"""Runs commands that end at once, each in a fork of a process that has made the imports, which take most of the time.

In: words, folder and variables. Out: what a command of its own would have returned and said.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

# What commands import before they refuse something.
IMPORTS = ("spreeze.commands.cli", "spreeze.supervision.supervisor", "spreeze.views.terminal", "gymnasium", "tyro")


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str


class ForkedCommands:
    """The process that forks, and how to ask it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )

    def run(self, words: Sequence[object], folder: Path, variables: Mapping[str, str], guard_s: float) -> Finished:
        """Run `spreeze WORDS` in a folder to its end. variables: besides those of this process."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with tempfile.NamedTemporaryFile() as said, tempfile.NamedTemporaryFile() as complained:
            order = {
                "words": [str(word) for word in words],
                "folder": str(folder),
                "variables": dict(variables),
                "files": [said.name, complained.name],
            }
            stdin.write(json.dumps(order).encode() + b"\n")
            stdin.flush()
            waiting = select.poll()  # `select.select` takes no descriptor above 1023
            waiting.register(stdout, select.POLLIN)
            if not waiting.poll(1000 * guard_s):
                raise TimeoutError(f"{order['words']} still runs after {guard_s:.0f} s")
            return Finished(int(stdout.readline()), _content(said), _content(complained))

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def _content(file: IO[bytes]) -> str:
    return file.read().decode(errors="replace")


def _serve() -> None:
    for module in IMPORTS:
        importlib.import_module(module)
    for line in sys.stdin.buffer:
        pid = os.fork()
        if not pid:
            _become_command(**json.loads(line))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become_command(words: list[str], folder: str, variables: dict[str, str], files: list[str]) -> None:
    from spreeze.commands.cli import main

    for fd, path in enumerate((os.devnull, *files)):
        os.dup2(os.open(path, os.O_RDWR), fd)
    os.setsid()  # a signal to its group reaches nobody else
    os.chdir(folder)
    os.environ.update(variables)
    sys.path[:0] = [folder, *variables.get("PYTHONPATH", "").split(os.pathsep)]
    sys.argv = ["spreeze", *words]
    code: object = 0
    try:
        main()
    except SystemExit as exit_:
        code = exit_.code
    except BaseException:
        traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    _serve()
