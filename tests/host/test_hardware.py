from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from spreeze.host import hardware
from spreeze.host.hardware import (
    CoreMeter,
    CoreUse,
    UsageMeter,
    free_gpu_bytes,
    gpus,
    this_machine,
    usable_cores,
    usable_memory_bytes,
)


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
        "from spreeze.host.hardware import usable_cores\n"
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
    # In processes of their own: what this one holds may be freed at any moment.
    holds = "import sys; block = b'1' * (64 << 20); print('ready', flush=True); sys.stdin.read()"
    children = [
        subprocess.Popen([sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        meter, pids = UsageMeter(), [child.pid for child in children]
        each = [meter.resident_bytes([pid]) for pid in pids]
        assert min(each) >= 64 << 20
        assert meter.resident_bytes(pids) == pytest.approx(sum(each), rel=0.01)
        assert meter.resident_bytes([]) == 0
    finally:
        for child in children:
            child.communicate()


def test_process_that_has_ended_counts_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert UsageMeter().resident_bytes([process.pid]) == 0


# --- where the cores go ----------------------------------------------------------------------------------------

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts each CPU")
BURN_S = 0.3
COARSE_S = 0.12  # ticks of 0.01 s, the start of a Python, and this process's own work
BURNER = """
import sys, time
for line in sys.stdin:
    end = time.process_time() + float(line)
    while time.process_time() < end:
        pass
    print("burnt", flush=True)
"""


class Burner:
    """A process that uses CPU time when told to."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", BURNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid

    def burn(self, cpu_s: float = BURN_S) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{cpu_s}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "burnt\n"

    def end(self) -> None:
        self.process.communicate()


@pytest.fixture
def burners() -> Iterator[tuple[Burner, Burner]]:
    both = Burner(), Burner()
    for burner in both:
        burner.burn(0)  # it has started
    yield both
    for burner in both:
        if burner.process.poll() is None:
            burner.end()


class Counted:
    """The system's clock and counters, told by the test: every window is a second, so that cores are CPU seconds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 0.0
        self.wall = time.time()
        self.set_busy({0: 0.0, 1: 0.0})
        self.set_container(0.0)

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now

    def time(self) -> float:
        return self.wall

    def set_busy(self, busy_s: dict[int, float]) -> None:
        rows = [
            f"cpu{cpu} {round(100 * busy)} 0 0 {round(self.now * 100)} 7 0 0 0 0 0" for cpu, busy in busy_s.items()
        ]
        (self.folder / "stat").write_text("\n".join(["cpu 1 2 3 4 5 6 7 8 9 10", *rows, "intr 99 0 1", "ctxt 5"]))

    def set_container(self, used_s: float) -> None:
        (self.folder / "cpu.stat").write_text(f"usage_usec {round(used_s * 1e6)}\nuser_usec 3\n")


@pytest.fixture
def counted(limits: Path, monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted = Counted(limits)
    monkeypatch.setattr(hardware, "time", counted)
    monkeypatch.setattr(hardware, "_STAT", limits / "stat")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    return counted


def near(cpu_s: float) -> Any:
    return pytest.approx(cpu_s, abs=COARSE_S)


def test_unlisted_program_is_seen_as_other() -> None:
    burner = Burner()
    meter, began = CoreMeter(), time.monotonic()
    burner.burn()
    at_most_s = time.monotonic() - began  # a little less than the window
    use = meter.read({"sample": [], "learn": []})
    # Cores times the window are CPU time again, whatever else the machine was doing.
    assert use.other_cores * at_most_s >= BURN_S - COARSE_S
    assert use.by_role == {"sample": 0.0, "learn": 0.0}
    burner.end()


@linux_only
def test_process_tied_to_one_cpu_shares_out_one_core() -> None:
    program = (
        "import os, subprocess, sys\n"
        "from spreeze.host.hardware import CoreMeter\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "meter = CoreMeter()\n"
        "burner = subprocess.Popen([sys.executable, '-S', '-c', sys.argv[1]], stdin=-1, stdout=-1)\n"
        "burner.stdin.write(b'0.3\\n')\n"
        "burner.stdin.flush()\n"
        "burner.stdout.readline()\n"
        "use = meter.read({})\n"
        "burner.communicate()\n"
        "print(use.idle_cores + use.other_cores, use.other_cores)\n"
    )
    command = [sys.executable, "-c", program, BURNER]
    told = subprocess.run(command, capture_output=True, check=True).stdout.split()
    both, other_cores = map(float, told)
    assert 0 < other_cores <= both <= 1


@pytest.mark.usefixtures("counted")
def test_listed_processes_count_for_their_role(burners: tuple[Burner, Burner]) -> None:
    first, second = burners
    roles = {"sample": [first.pid, second.pid], "learn": [second.pid]}
    meter = CoreMeter()
    assert meter.read(roles).by_role == {"sample": 0.0, "learn": 0.0}  # counted from here on
    first.burn(0.2)
    second.burn(0.4)
    assert meter.read(roles).by_role == {"sample": near(0.6), "learn": near(0.4)}
    assert meter.read(roles).by_role == {"sample": near(0.0), "learn": near(0.0)}


@linux_only
def test_what_is_busy_is_the_runs_or_others(burners: tuple[Burner, Burner], counted: Counted) -> None:
    burner, _ = burners
    meter = CoreMeter()
    meter.read({"sample": [burner.pid]})
    burner.burn()
    counted.set_busy({0: BURN_S, 1: 0.5})
    use = meter.read({"sample": [burner.pid]})
    percent = pytest.approx(100 * BURN_S), pytest.approx(50.0)
    assert use == CoreUse({"sample": near(BURN_S)}, near(2.0 - BURN_S - 0.5), near(0.5), percent)
    assert sum(use.by_role.values()) + use.idle_cores + use.other_cores == near(2.0)


@linux_only
def test_this_process_is_no_other_program_and_counts_once(counted: Counted) -> None:
    meter = CoreMeter()
    for listed, busy_s in (([], 0.6), ([os.getpid()], 1.2)):
        end = time.process_time() + BURN_S
        while time.process_time() < end:
            pass
        counted.set_busy({0: busy_s, 1: 0.0})
        use = meter.read({"supervise": listed})
        assert use.by_role["supervise"] == near(BURN_S if listed else 0.0)
        assert use.other_cores == near(0.6 - BURN_S)


@linux_only
def test_process_that_started_in_the_window_is_not_another_program(counted: Counted) -> None:
    meter = CoreMeter()
    burner = Burner()
    burner.burn()
    counted.set_busy({0: BURN_S, 1: 0.0})
    use = meter.read({"sample": [burner.pid]})
    assert use.by_role == {"sample": 0.0}
    assert use.other_cores == near(0.0)
    burner.end()


@linux_only
def test_process_listed_late_brings_no_time_from_before(burners: tuple[Burner, Burner], counted: Counted) -> None:
    burner, _ = burners
    burner.burn()
    counted.wall += 1000.0  # it has run for long
    meter = CoreMeter()
    counted.set_busy({0: BURN_S, 1: 0.0})
    use = meter.read({"sample": [burner.pid]})
    assert use.by_role == {"sample": 0.0}
    assert use.other_cores == near(BURN_S)


@linux_only
@pytest.mark.parametrize("still_listed", [True, False])
def test_process_that_ended_is_not_another_program(
    burners: tuple[Burner, Burner], counted: Counted, still_listed: bool
) -> None:
    burner, _ = burners
    burner.burn()
    meter = CoreMeter()
    meter.read({"sample": [burner.pid]})
    burner.burn()
    burner.end()
    counted.set_busy({0: BURN_S + 0.5, 1: 0.0})
    use = meter.read({"sample": [burner.pid] if still_listed else []})
    assert use.by_role == {"sample": 0.0}
    assert use.other_cores == near(0.5)
    counted.set_busy({0: BURN_S + 1.0, 1: 0.0})
    assert meter.read({"sample": [burner.pid]}).other_cores == near(0.5)


@pytest.mark.usefixtures("counted")
def test_number_of_an_ended_process_may_be_anothers(
    burners: tuple[Burner, Burner], monkeypatch: pytest.MonkeyPatch
) -> None:
    burner, _ = burners
    meter = CoreMeter()
    meter.read({"sample": [burner.pid]})
    burner.burn()
    with monkeypatch.context() as patch:
        patch.setattr(psutil.Process, "is_running", lambda process: process.pid != burner.pid)
        assert meter.read({"sample": [burner.pid]}).by_role == {"sample": 0.0}
    assert meter.read({"sample": [burner.pid]}).by_role == {"sample": 0.0}  # the new one's first reading
    burner.burn()
    assert meter.read({"sample": [burner.pid]}).by_role == {"sample": near(BURN_S)}


@pytest.mark.usefixtures("counted")
def test_process_of_another_user_counts_nothing(
    burners: tuple[Burner, Burner], monkeypatch: pytest.MonkeyPatch
) -> None:
    burner, _ = burners
    cpu_times = psutil.Process.cpu_times

    def deny(process: psutil.Process) -> object:
        if process.pid == burner.pid:
            raise psutil.AccessDenied(process.pid)
        return cpu_times(process)

    meter = CoreMeter()
    meter.read({"sample": [burner.pid]})
    burner.burn()
    monkeypatch.setattr(psutil.Process, "cpu_times", deny)
    assert [meter.read({"sample": [burner.pid]}).by_role["sample"] for _ in range(2)] == [0.0, 0.0]


@linux_only
@pytest.mark.parametrize(
    ("usable", "shown", "idle", "other", "percent"),
    [
        ({0, 1}, (0, 1), 1.2, 0.8, (60, 20)),
        ({0}, (0, 1), 0.4, 0.6, (60,)),
        ({1}, (0, 1), 0.8, 0.2, (20,)),
        ({0, 5}, (0, 5), 1.2, 0.8, (60, 20)),  # those between are offline
        ({5}, (0, 5), 0.8, 0.2, (20,)),
        ({8, 9}, (0, 1), 1.2, 0.8, (60, 20)),  # a container that renumbers its CPUs
    ],
)
def test_only_the_cpus_that_may_be_used_count(
    counted: Counted,
    monkeypatch: pytest.MonkeyPatch,
    usable: set[int],
    shown: tuple[int, int],
    idle: float,
    other: float,
    percent: tuple[float, ...],
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: usable)
    counted.set_busy(dict.fromkeys(shown, 0.0))
    meter = CoreMeter()
    counted.set_busy(dict(zip(shown, (0.6, 0.2), strict=True)))
    assert meter.read({}) == CoreUse({}, near(idle), near(other), tuple(map(pytest.approx, percent)))


@linux_only
def test_counters_that_are_not_shown_leave_the_runs_own_use(burners: tuple[Burner, Burner], counted: Counted) -> None:
    burner, _ = burners
    (counted.folder / "stat").unlink()
    meter = CoreMeter()
    meter.read({"sample": [burner.pid]})
    burner.burn()
    assert meter.read({"sample": [burner.pid]}) == CoreUse(
        {"sample": near(BURN_S)},
        near(2.0 - BURN_S),
        near(0.0),
        (0.0, 0.0),
    )


@linux_only
def test_cpu_is_never_more_than_all_busy(counted: Counted) -> None:
    meter = CoreMeter()
    counted.set_busy({0: 1.04, 1: 1.0})  # ticks that were counted a little later than the clock was read
    assert meter.read({}).busy_percent == (100.0, 100.0)


@linux_only
@pytest.mark.parametrize(
    ("quota", "busy", "container", "idle", "other"),
    [
        ("150000 100000", (0.0, 0.0), 0.0, 1.5, 0.0),
        ("150000 100000", (0.9, 0.0), 0.4, 1.1, 0.4),  # what is used outside of the container leaves enough
        ("150000 100000", (0.9, 0.0), 0.9, 0.6, 0.9),
        ("150000 100000", (0.9, 0.8), 0.4, 0.3, 1.2),  # and here it does not
        ("150000 100000", (1.0, 1.0), 1.5, 0.0, 1.5),
        ("400000 100000", (0.5, 0.5), 0.9, 1.0, 1.0),  # a quota above the CPUs does not bind
        ("max 100000", (0.5, 0.5), 0.9, 1.0, 1.0),
    ],
)
def test_quota_of_a_container_is_what_is_shared_out(
    counted: Counted, quota: str, busy: tuple[float, float], container: float, idle: float, other: float
) -> None:
    (counted.folder / "cpu.max").write_text(quota)
    meter = CoreMeter()
    counted.set_busy(dict(enumerate(busy)))
    counted.set_container(container)
    percent = tuple(pytest.approx(100 * cpu) for cpu in busy)
    assert meter.read({}) == CoreUse({}, near(idle), near(other), percent)


# --- GPUs ------------------------------------------------------------------------------------------------------


class FakeNvml:
    """Three GPUs and a part of one, as NVML shows them."""

    class NVMLError(Exception):
        pass

    GPUS = ("GPU-aa11", "GPU-bb22", "GPU-bb33")

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    def nvmlInit(self) -> None:  # noqa: N802
        if self.fails:
            raise self.NVMLError("no driver")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.GPUS)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        return self.GPUS[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid != "MIG-cc44":
            raise self.NVMLError("not found")
        return uuid

    def nvmlDeviceGetUUID(self, handle: str) -> str:  # noqa: N802
        return handle

    def nvmlDeviceGetName(self, handle: str) -> str:  # noqa: N802
        return f"name of {handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:  # noqa: N802
        number = int(handle[-2:])
        return SimpleNamespace(total=1000 * number, used=300 * number, free=700 * number)

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(gpu=int(handle[-2:]))


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


@pytest.mark.usefixtures("nvml")
@pytest.mark.parametrize(
    ("visible", "shown"),
    [
        (None, ["GPU-aa11", "GPU-bb22", "GPU-bb33"]),
        ("0", ["GPU-aa11"]),
        ("2,0", ["GPU-bb33", "GPU-aa11"]),
        (" 1 , 2", ["GPU-bb22", "GPU-bb33"]),
        ("GPU-bb33,GPU-aa11", ["GPU-bb33", "GPU-aa11"]),
        ("GPU-a", ["GPU-aa11"]),
        ("GPU-bb", []),  # two begin so
        ("MIG-cc44", ["MIG-cc44"]),
        ("0,MIG-unknown,1", ["GPU-aa11"]),
        ("", []),
        ("-1", []),
        ("1,-1,0", ["GPU-bb22"]),
        ("0,3,1", ["GPU-aa11"]),
        ("1,1", []),
        ("NoDevFiles", []),
    ],
)
def test_visible_gpus_are_those_of_cuda_in_its_order(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, shown: list[str]
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [gpu.name for gpu in gpus()] == [f"name of {uuid}" for uuid in shown]


@pytest.mark.usefixtures("nvml")
@pytest.mark.parametrize(
    ("visible", "device", "number"),
    [
        ("0,1,2", "cuda", 11),
        ("0,1,2", "cuda:0", 11),
        ("0,1,2", "cuda:2", 33),
        ("2,0", "cuda", 33),
        ("2,0", "cuda:1", 11),
        ("GPU-bb22", "cuda:0", 22),
        ("2,0", "cuda:2", None),
        ("", "cuda", None),
        ("0,1,2", "cpu", None),
    ],
)
def test_gpu_of_the_device_is_read(
    monkeypatch: pytest.MonkeyPatch, visible: str, device: str, number: int | None
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert UsageMeter(device).gpu() == ((None, None) if number is None else (number, 300 * number))
    assert free_gpu_bytes(device) == (None if number is None else 700 * number)


@pytest.mark.usefixtures("nvml")
def test_first_gpu_is_read_unless_told_otherwise() -> None:
    assert UsageMeter().gpu() == (11, 3300)


def test_without_a_driver_there_is_no_gpu(nvml: FakeNvml) -> None:
    nvml.fails = True
    assert gpus() == ()
    assert UsageMeter().gpu() == (None, None)
    assert free_gpu_bytes("cuda") is None


def test_gpu_that_does_not_tell_is_none(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    meter = UsageMeter("cuda:1")
    assert meter.gpu() != (None, None)

    def refuse(_: str) -> SimpleNamespace:
        raise nvml.NVMLError("not supported")

    monkeypatch.setattr(nvml, "nvmlDeviceGetMemoryInfo", refuse)
    assert meter.gpu() == (None, None)
    assert free_gpu_bytes("cuda:1") is None
    assert gpus() == ()
