"""What this machine really offers to this process, and how busy it is."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Gpu:
    """One GPU, as the driver describes it."""

    name: str
    memory_bytes: int


@dataclass(frozen=True)
class Machine:
    """What is here."""

    cores: int
    """CPU cores this process may use: its affinity, and the quota of its container."""
    memory_bytes: int
    gpus: tuple[Gpu, ...]


def this_machine() -> Machine:
    """Look at the machine; takes milliseconds."""
    return Machine(usable_cores(), usable_memory_bytes(), gpus())


def usable_cores() -> int:
    """Return the cores this process may use, which in a container are fewer than the host has."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quota, _, period = _read(_CGROUP / "cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit():
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def usable_memory_bytes() -> int:
    """Return the memory that may still be used: what is available, or what the container's limit leaves."""
    available = int(psutil.virtual_memory().available)
    limit, used = _read(_CGROUP / "memory.max"), _read(_CGROUP / "memory.current")
    if limit.isdigit() and used.isdigit():
        # Pages of files that were read, such as a package just installed, count as used but are given up on demand.
        stat = dict(line.split(" ", 1) for line in _read(_CGROUP / "memory.stat").splitlines())
        taken = int(used) - int(stat.get("inactive_file", 0))
        available = min(available, max(0, int(limit) - taken))
    return available


def gpus() -> tuple[Gpu, ...]:
    """Return the NVIDIA GPUs that the driver shows and CUDA_VISIBLE_DEVICES leaves."""
    try:
        import pynvml

        pynvml.nvmlInit()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        chosen = None if visible is None else [part for part in visible.split(",") if part.strip()]
        count = pynvml.nvmlDeviceGetCount() if chosen is None else min(len(chosen), pynvml.nvmlDeviceGetCount())
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        return tuple(
            Gpu(str(pynvml.nvmlDeviceGetName(handle)), int(pynvml.nvmlDeviceGetMemoryInfo(handle).total))
            for handle in handles
        )
    except Exception:
        return ()  # no driver, or no GPU, or one that does not say what it is: none that we could plan with


class UsageMeter:
    """How busy the machine and the run's processes are, since the last reading."""

    def __init__(self) -> None:
        self._has_gpu = bool(gpus())
        psutil.cpu_percent(None)  # the first call only starts the window

    def cpu_percent(self) -> float:
        """Return how much of all cores was in use, in percent."""
        return float(psutil.cpu_percent(None))

    def gpu(self) -> tuple[float | None, int | None]:
        """Return the first GPU's utilisation in percent and its memory in use, or None without one."""
        if not self._has_gpu:
            return None, None
        import pynvml

        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
            return float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu), memory
        except pynvml.NVMLError:
            return None, None  # some virtual GPUs do not tell

    def resident_bytes(self, pids: list[int]) -> int:
        """Return the memory resident in these processes; pages that several share count in each."""
        total = 0
        for pid in pids:
            try:
                total += psutil.Process(pid).memory_info().rss
            except psutil.NoSuchProcess:
                continue  # it ended since the list was made
        return total


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""  # no such limit here
