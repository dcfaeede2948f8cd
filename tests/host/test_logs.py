from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from spreeze.host import logs
from spreeze.host.logs import open_log, trim_logs


def test_a_log_keeps_its_beginning_and_its_end_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MAX_LOG_BYTES", 10_000)
    monkeypatch.setattr(logs, "KEPT_BYTES", 1000)
    path, other = tmp_path / "sampler-0.log", tmp_path / "learner.log"
    other.write_bytes(b"x" * 10_000)
    with path.open("ab", buffering=0) as log:
        for number in range(5000):
            log.write(f"line {number}\n".encode())
            trim_logs(tmp_path)
            assert path.stat().st_size <= 10_000
        log.write(b"the end\n")
    text = path.read_text()
    assert text.startswith("line 0\nline 1\n")
    assert text.endswith("line 4998\nline 4999\nthe end\n")
    assert text.count("bytes were cut out here]\n") == 1
    assert other.stat().st_size == 10_000


def test_logs_that_are_gone_are_no_matter(tmp_path: Path) -> None:
    trim_logs(tmp_path / "logs")


def test_a_process_whose_log_the_disk_refuses_does_without(tmp_path: Path) -> None:
    with os.fdopen(open_log(tmp_path / "run" / "logs" / "learner.log"), "ab") as log:  # the folder is gone
        log.write(b"lost")
    assert not list(tmp_path.iterdir())


def test_printing_to_a_full_disk_raises_nothing(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from spreeze.host.logs import print_forgivingly\n"
        "undo = print_forgivingly()\n"
        "input()\n"
        "for _ in range(10_000): print('x' * 100)\n"
        "print('y', file=sys.stderr, flush=True)\n"
        "undo()\n"
        "os._exit(7)\n"
    )
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=log, stderr=log)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (5000, 5000))
        process.communicate(b"go on\n")
    assert process.returncode == 7
    assert (tmp_path / "log").read_bytes() == (b"x" * 100 + b"\n") * 49 + b"x" * 51
