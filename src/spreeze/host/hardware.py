"""The cores, memory and GPUs that this process may use, and how busy they are."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil

_CGROUP = Path("/sys/fs/cgroup")
_STAT = Path("/proc/stat")
_CPU_INFO = Path("/proc/cpuinfo")
_BUSY_COLUMNS = (0, 1, 2, 5, 6, 7)  # user, nice, system, irq, softirq, steal; see proc_stat(5)
_STATM_COUNTS = Path("/proc/self/statm").exists()
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_CLOCK_ERROR_S = 1.0  # Linux gives the time of its boot, and so of a process's start, in whole seconds


@dataclass(frozen=True)
class Gpu:
    """One GPU, as the driver describes it."""

    name: str
    memory_bytes: int


@dataclass(frozen=True)
class Machine:
    """What this process may use of the machine."""

    cores: int
    """CPU cores this process may use: its affinity, and the quota of its container."""
    memory_bytes: int
    gpus: tuple[Gpu, ...]


def this_machine() -> Machine:
    """Examine the machine. Takes milliseconds."""
    return Machine(usable_cores(), usable_memory_bytes(), gpus())


def usable_cores() -> int:
    """Return the cores this process may use, which in a container are fewer than the host has."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quota = _quota_cores()
    return cores if quota is None else min(cores, max(1, int(quota)))


def usable_memory_bytes() -> int:
    """Return the memory that is still free: on the machine, or within the container's limit."""
    available = int(psutil.virtual_memory().available)
    limit, used = _read(_CGROUP / "memory.max"), _read(_CGROUP / "memory.current")
    if limit.isdigit() and used.isdigit():
        # Cached pages of files, such as a package just installed, count as used but are freed on demand.
        stat = dict(line.split(" ", 1) for line in _read(_CGROUP / "memory.stat").splitlines())
        taken = int(used) - int(stat.get("inactive_file", 0))
        available = min(available, max(0, int(limit) - taken))
    return available


def gpus() -> tuple[Gpu, ...]:
    """Return the NVIDIA GPUs that the driver shows and CUDA_VISIBLE_DEVICES leaves, in its order."""
    try:
        import pynvml

        return tuple(
            Gpu(str(pynvml.nvmlDeviceGetName(handle)), int(pynvml.nvmlDeviceGetMemoryInfo(handle).total))
            for handle in _visible_handles()
        )
    except Exception:
        return ()  # no driver, no GPU, or one that cannot be queried: nothing to plan with


def free_gpu_bytes(device: str) -> int | None:
    """Return the memory that is free on the GPU of a device such as cuda:1, or None if it is not known."""
    try:
        import pynvml

        handle = _handle_of(device)
        return None if handle is None else int(pynvml.nvmlDeviceGetMemoryInfo(handle).free)
    except Exception:
        return None  # no driver, or a GPU that shares the system's memory


class UsageMeter:
    """How busy the machine, the GPU of a device and the run's processes are, since the last reading."""

    def __init__(self, device: str = "cuda") -> None:
        try:
            self._gpu = _handle_of(device)
        except Exception:
            self._gpu = None  # no driver
        self._cores = CoreMeter()
        psutil.cpu_percent(None)  # the first call only starts the window

    def cpu_percent(self) -> float:
        """Return how much of all cores was in use, in percent."""
        try:
            return float(psutil.cpu_percent(None))
        except OSError:
            return 0.0  # no file handle is left

    def cores(self, pids_by_role: Mapping[str, Sequence[int]]) -> CoreUse:
        """Return where the cores went."""
        return self._cores.read(pids_by_role)

    def gpu(self) -> tuple[float | None, int | None]:
        """Return the GPU's utilisation in percent and its memory in use, or None without one."""
        if self._gpu is None:
            return None, None
        import pynvml

        try:
            memory = int(pynvml.nvmlDeviceGetMemoryInfo(self._gpu).used)
            return float(pynvml.nvmlDeviceGetUtilizationRates(self._gpu).gpu), memory
        except pynvml.NVMLError:
            return None, None  # some virtual GPUs do not report it

    def resident_bytes(self, pids: Iterable[int]) -> int:
        """Return the memory resident in these processes. Shared pages count in each."""
        return sum(map(resident_bytes, pids))


def resident_bytes(pid: int) -> int:
    """Return the memory resident in one process, 0 if it has ended."""
    try:
        if _STATM_COUNTS:
            # The same number as psutil's, at a third of its cost: there may be many samplers.
            return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE_BYTES
        return int(psutil.Process(pid).memory_info().rss)
    except (psutil.NoSuchProcess, OSError):
        return 0  # it ended since the list was made


# --- where the cores go ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CoreUse:
    """Where the cores went over a window. Together with what this process used, they sum to all usable cores."""

    by_role: dict[str, float]
    """Cores that the processes of each role used, with their threads but without their child processes."""
    idle_cores: float
    other_cores: float
    """Cores used by programs outside of the run, by the kernel, or by other virtual machines of the same host."""
    busy_percent: tuple[float, ...]
    """How busy each usable CPU was, with all programs, in the order of their numbers."""


class CoreMeter:
    """How many cores were used by a run's roles, used by other programs, and idle, since the last reading.

    It covers the CPUs that this process may use when the meter is made. Where a container's quota allows less, the
    cores sum to the quota: idle is the unused rest of it, if that many CPUs really are idle. Time that is neither
    idle nor the run's counts as other, whether it was used in the same container or outside.

    A process counts from its first reading until it ends. The system counts in hundredths of a second: windows below
    about 0.2 s are coarse.
    """

    def __init__(self) -> None:
        self._cpus = _usable_cpus()
        self._seen: dict[int, _Seen] = {}
        self._see(os.getpid())
        self._last = _Counters.read(self._cpus)

    def read(self, pids_by_role: Mapping[str, Sequence[int]]) -> CoreUse:
        """Return the use over the window since the last call. Costs 3.4 ms for 70 processes."""
        last, now = self._last, _Counters.read(self._cpus)
        self._last = now
        used_s, ended_before_s = self._read_seen()
        listed = {pid for pids in pids_by_role.values() for pid in pids}
        # Loading its libraries keeps a new process busy for seconds: the run's use, though no role's yet.
        started_s = sum(self._see(pid, last.wall_at) for pid in listed - self._seen.keys())
        # The system adds a child's whole time to this process's account once it is waited for.
        ended_s = max(0.0, now.reaped_s - last.reaped_s - ended_before_s)

        window_s = max(now.at - last.at, 1e-3)
        idle, other = _share_out(
            cpus=len(now.busy_s),
            quota=_quota_cores(),
            run=(sum(used_s.values()) + started_s) / window_s,
            ended=ended_s / window_s,
            busy=(sum(now.busy_s.values()) - sum(last.busy_s.values())) / window_s,
            container=(now.container_s - last.container_s) / window_s,
        )
        by_role = {role: sum(used_s.get(pid, 0.0) for pid in pids) / window_s for role, pids in pids_by_role.items()}
        busy = (now.busy_s[cpu] - last.busy_s.get(cpu, now.busy_s[cpu]) for cpu in sorted(now.busy_s))
        # Ticks and our clock do not end at the same moment: a busy CPU may show more than 100%.
        return CoreUse(by_role, idle, other, tuple(min(100.0, 100.0 * busy_s / window_s) for busy_s in busy))

    def _read_seen(self) -> tuple[dict[int, float], float]:
        """Return what each process used since its last reading, and what ended processes had used before theirs."""
        used_s, ended_before_s = {}, 0.0
        for pid, (process, before_s) in list(self._seen.items()):
            total_s = _cpu_s(process)
            if total_s is None:
                del self._seen[pid]
                ended_before_s += before_s
            else:
                self._seen[pid] = _Seen(process, total_s)
                used_s[pid] = total_s - before_s
        return used_s, ended_before_s

    def _see(self, pid: int, window_began_at: float = float("inf")) -> float:
        """Count a process from now on; return what it used so far if it was started within the window."""
        try:
            process = psutil.Process(pid)
            total_s = _cpu_s(process)
            if total_s is None:
                return 0.0
            self._seen[pid] = _Seen(process, total_s)
            return total_s if process.create_time() > window_began_at - _CLOCK_ERROR_S else 0.0
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            return 0.0  # it has ended, is another user's, or no file handle is left


class _Seen(NamedTuple):
    process: psutil.Process
    cpu_s: float


class _Counters(NamedTuple):
    """The system's counters at one moment."""

    at: float
    wall_at: float
    busy_s: dict[int, float]
    """Of each usable CPU, by its number."""
    container_s: float
    """CPU time of all processes in this container; 0 where it is not counted."""
    reaped_s: float
    """CPU time of this process's children that have ended and been waited for."""

    @staticmethod
    def read(cpus: frozenset[int] | None) -> _Counters:
        usage_us = dict(line.split(" ", 1) for line in _read(_CGROUP / "cpu.stat").splitlines()).get(
            "usage_usec", "0"
        )
        own = os.times()
        reaped_s = own.children_user + own.children_system
        return _Counters(time.monotonic(), time.time(), _busy_s(cpus), int(usage_us) / 1e6, reaped_s)


def _share_out(
    cpus: int, quota: float | None, run: float, ended: float, busy: float, container: float
) -> tuple[float, float]:
    """Return how many cores were idle, and how many others used. ended: used by the run's ended processes."""
    cores, unused = float(cpus), cpus - max(busy, run)
    if quota is not None and quota < cpus:
        cores, unused = quota, min(unused, quota - max(container, run))
    idle = max(0.0, unused)
    return idle, max(0.0, cores - idle - run - ended)


def _usable_cpus() -> frozenset[int] | None:
    return frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else None


def _busy_s(cpus: frozenset[int] | None) -> dict[int, float]:
    """Return the seconds that each usable CPU has been busy."""
    if cpus is None:
        return {cpu: sum(times) - times.idle for cpu, times in enumerate(psutil.cpu_times(percpu=True))}
    # Not psutil's list, which lacks the CPUs' numbers: if one is offline, they are not the positions.
    rows = [line.split() for line in _read(_STAT).splitlines() if line.startswith("cpu")]
    ticks = {int(row[0][3:]): sum(int(row[1 + column]) for column in _BUSY_COLUMNS) for row in rows[1:]}
    # A container may renumber the CPUs it shows: then it may use all of them.
    counted = cpus if cpus <= ticks.keys() else ticks.keys()
    a_second = os.sysconf("SC_CLK_TCK")
    return {cpu: ticks[cpu] / a_second for cpu in counted} or dict.fromkeys(cpus, 0.0)


def _cpu_s(process: psutil.Process) -> float | None:
    """Return the CPU time of a process so far, or None if it has ended."""
    try:
        if not process.is_running():
            return None  # its number may be another process's by now
        times = process.cpu_times()
        return float(times.user + times.system)
    except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):  # the last: no file handle is left
        return None


def _quota_cores() -> float | None:
    quota, _, period = _read(_CGROUP / "cpu.max").partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


# --- GPUs ------------------------------------------------------------------------------------------------------


def _handle_of(device: str) -> Any | None:
    """Return NVML's handle of a device such as cuda or cuda:1; None if it is not a visible GPU."""
    kind, _, index = device.partition(":")
    handles = _visible_handles() if kind == "cuda" else []
    return handles[int(index or 0)] if int(index or 0) < len(handles) else None


def _visible_handles() -> list[Any]:
    """Return NVML's handles of the GPUs that CUDA shows, in its order, if that is by bus as NVML's is.

    CUDA orders different GPUs by speed unless CUDA_DEVICE_ORDER=PCI_BUS_ID is set, and NVML does not know the speeds.
    """
    import pynvml

    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return handles
    chosen: dict[str, Any] = {}
    for name in wanted.split(","):
        handle = _handle_named(name.strip(), handles)
        if handle is None:
            break  # CUDA hides all GPUs after a name it does not know, such as -1
        uuid = str(pynvml.nvmlDeviceGetUUID(handle))
        if uuid in chosen:
            return []  # as CUDA does where one is named twice
        chosen[uuid] = handle
    return list(chosen.values())


def _handle_named(name: str, handles: Sequence[Any]) -> Any | None:
    import pynvml

    if name.isdecimal():
        return handles[int(name)] if int(name) < len(handles) else None
    if name.startswith("MIG-"):
        try:
            return pynvml.nvmlDeviceGetHandleByUUID(name)
        except pynvml.NVMLError:
            return None
    # CUDA accepts the beginning of a UUID, which NVML's own search does not.
    matches = [handle for handle in handles if str(pynvml.nvmlDeviceGetUUID(handle)).startswith(name)]
    return matches[0] if name.startswith("GPU-") and len(matches) == 1 else None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""  # no such limit here


def cpu_name() -> str:
    """Return the name of the processor."""
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
