from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from spreeze.adapt import hardware
from spreeze.adapt.hardware import UsageMeter, this_machine, usable_cores, usable_memory_bytes


@pytest.fixture
def limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of the container's limits; empty, there are none."""
    monkeypatch.setattr(hardware, "_CGROUP", tmp_path)
    return tmp_path


def test_machine_has_cores_and_memory() -> None:
    machine = this_machine()
    assert 1 <= machine.cores <= (os.cpu_count() or 1)
    assert 0 < machine.memory_bytes <= psutil.virtual_memory().total
    assert all(gpu.memory_bytes > 0 and gpu.name for gpu in machine.gpus)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties processes to cores")
def test_cores_are_those_that_the_process_may_use() -> None:
    program = (
        "import os\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from spreeze.adapt.hardware import usable_cores\n"
        "print(usable_cores())\n"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"1\n"


@pytest.mark.parametrize(
    ("quota", "cores"), [("100000 100000", 1), ("150000 100000", 1), ("50000 100000", 1), ("1000 100000", 1)]
)
def test_quota_of_a_container_limits_the_cores(limits: Path, quota: str, cores: int) -> None:
    (limits / "cpu.max").write_text(quota + "\n")
    assert usable_cores() == cores


@pytest.mark.parametrize("quota", ["max 100000", "10000000 100000", "", "nonsense"])
def test_quota_that_does_not_bind_changes_nothing(limits: Path, quota: str) -> None:
    without = usable_cores()
    (limits / "cpu.max").write_text(quota)
    assert usable_cores() == without >= 1


def test_limit_of_a_container_limits_the_memory(limits: Path) -> None:
    (limits / "memory.max").write_text("3000000\n")
    (limits / "memory.current").write_text("1000000\n")
    assert usable_memory_bytes() == 2_000_000
    (limits / "memory.current").write_text("4000000\n")
    assert usable_memory_bytes() == 0


@pytest.mark.parametrize("limit", ["max", str(2**62), ""])
def test_memory_limit_that_does_not_bind_changes_nothing(limits: Path, limit: str) -> None:
    (limits / "memory.max").write_text(limit)
    (limits / "memory.current").write_text("1000")
    assert 2**20 < usable_memory_bytes() <= psutil.virtual_memory().total


def test_usage_is_a_share_of_all_cores() -> None:
    meter = UsageMeter()
    assert 0 <= meter.cpu_percent() <= 100
    percent, memory = meter.gpu()
    assert (percent is None) == (memory is None) == (not this_machine().gpus)


def test_resident_memory_is_summed_over_the_processes() -> None:
    meter = UsageMeter()
    own = meter.resident_bytes([os.getpid()])
    assert own > 2**20
    block = np.ones(64 * 2**20, np.uint8)  # written, so that its pages are resident
    assert meter.resident_bytes([os.getpid()]) >= own + len(block) // 2
    twice = meter.resident_bytes([os.getpid(), os.getpid()])
    assert twice >= 2 * own
    assert meter.resident_bytes([]) == 0


def test_process_that_has_ended_counts_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert UsageMeter().resident_bytes([process.pid]) == 0
