"""Forks that stand for programs in other tests: they look like programs, and are none."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Spreeze

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes through /proc")


def test_processes_of_a_run_are_forks_that_look_like_programs(spreeze: Spreeze, in_full: bool) -> None:
    run = spreeze.start_training("Toy/Point-v0", max_seconds=90)
    spreeze.wait_for_policy(run)
    (sampler,), (learner,) = spreeze.processes("sampler"), spreeze.processes("learner")
    for process, role in ((sampler, "sampler"), (learner, "learner")):
        assert process.cmdline()[1:5] == ["-P", "-m", "spreeze.supervision.worker_main", role]
        assert process.environ()["OMP_NUM_THREADS"] == "1"
        assert process.ppid() == run.process.pid
        assert os.getpgid(process.pid) == process.pid
        for output in (1, 2):
            assert Path(f"/proc/{process.pid}/fd/{output}").readlink().parent == spreeze.run_dir / "logs"
    # A sampler has no torch, unless it was forked from a process that has.
    assert ("libtorch" in Path(f"/proc/{sampler.pid}/maps").read_text()) != in_full
    os.kill(run.process.pid, signal.SIGINT)
    assert run.finish().returncode == 130
