from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spreeze.adapt import remember
from spreeze.adapt.remember import (
    MAX_ENTRIES,
    Memory,
    UpdateTimesMemory,
    machine_key,
    recall_update_times,
    update_times_key,
)
from spreeze.adapt.update_times import UpdateTimes
from spreeze.config.run_settings import RunSettings
from spreeze.host import hardware
from spreeze.host.hardware import Gpu, Machine

FOUND = RunSettings(samplers=6, envs_per_sampler=4, batch_size=8192, learner_threads=2)
OTHER = RunSettings(samplers=1, envs_per_sampler=1, batch_size=256, learner_threads=1, pinned=True)
ENTRY = {**FOUND._asdict(), "kept_at": 1.0}

counts = st.integers(1, 2**31 - 1)
some_settings = st.builds(RunSettings, counts, counts, counts, counts, st.booleans())
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(), parts, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "settings.json"


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def names(folder: Path) -> list[str]:
    return sorted(part.name for part in folder.iterdir())


# --- what was kept comes back ----------------------------------------------------------------------------------


def test_nothing_is_known_at_first(path: Path) -> None:
    memory = Memory(path)
    assert memory.recall("Ant-v5") is None
    assert memory.warning is None
    assert not path.parent.exists()  # looking leaves no trace


def test_settings_are_recalled_by_their_key(path: Path) -> None:
    Memory(path).keep("Ant-v5", FOUND)
    Memory(path).keep("Hopper-v5", OTHER)
    memory = Memory(path)
    assert memory.recall("Ant-v5") == FOUND
    assert memory.recall("Hopper-v5") == OTHER
    assert memory.recall("Walker2d-v5") is None
    assert memory.warning is None
    Memory(path).keep("Ant-v5", OTHER)
    assert memory.recall("Ant-v5") == OTHER
    assert names(path.parent) == ["settings.json"]


@given(key=st.text(), found=some_settings)
def test_any_settings_come_back_as_they_were(key: str, found: RunSettings) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "settings.json"
        memory = Memory(path)
        memory.keep(key, found)
        memory.keep(key + "x", FOUND)
        assert memory.recall(key) == found
        assert memory.warning is None


def test_oldest_entries_are_dropped(path: Path) -> None:
    entries = {f"task {number}": {**ENTRY, "kept_at": 1e6 + number} for number in range(MAX_ENTRIES)}
    entries["task 7"]["kept_at"] = 5  # the oldest
    write(path, json.dumps(dict(reversed(entries.items()))).encode())
    memory = Memory(path)
    memory.keep("new", OTHER)
    assert len(json.loads(path.read_text())) == MAX_ENTRIES
    assert memory.recall("task 7") is None
    assert memory.recall("task 0") == FOUND
    assert memory.recall("new") == OTHER
    memory.keep("task 9", FOUND)  # one that is known takes no other's place
    assert memory.recall("task 0") == FOUND
    memory.keep("newer", OTHER)
    assert memory.recall("task 0") is None
    assert memory.recall("new") == OTHER


def test_entries_from_a_clock_that_was_ahead_do_not_push_out_the_new_one(path: Path) -> None:
    entries = {f"task {number}": {**ENTRY, "kept_at": 2**50} for number in range(MAX_ENTRIES)}
    memory = Memory(write(path, json.dumps(entries).encode()))
    memory.keep("new", OTHER)
    assert memory.recall("new") == OTHER
    assert len(json.loads(path.read_text())) == MAX_ENTRIES


def test_file_is_whole_at_any_moment_while_many_write(path: Path) -> None:
    def write_often(number: int) -> None:
        for _ in range(25):
            memory = Memory(path)
            memory.keep(f"task {number}", FOUND._replace(samplers=number))
            warnings.append(memory.warning)

    warnings: list[str | None] = []
    Memory(path).keep("before", OTHER)
    writers = [threading.Thread(target=write_often, args=(number,)) for number in range(1, 5)]
    for writer in writers:
        writer.start()
    reader = Memory(path)
    while any(writer.is_alive() for writer in writers):
        assert reader.recall("before") == OTHER, reader.warning
    for writer in writers:
        writer.join()
    assert warnings == [None] * 100
    assert names(path.parent) == ["settings.json"]


# --- what is broken is ignored ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"7",
        b"\xff\xfe\x00",
        b'{"Ant-v5": ',
        b"[" * 100_000,
        b'{"a": ' + b"9" * 10_000 + b"}",
    ],
    ids=["empty", "cut", "list", "null", "number", "binary", "cut in an entry", "deep", "long number"],
)
def test_broken_file_is_one_warning_and_is_replaced(path: Path, content: bytes) -> None:
    memory = Memory(write(path, content))
    assert memory.recall("Ant-v5") is None
    assert memory.warning is not None
    assert str(path) in memory.warning
    assert "delete" in memory.warning
    assert "\n" not in memory.warning
    assert path.read_bytes() == content  # recalling changes nothing
    memory.keep("Ant-v5", FOUND)
    assert memory.warning is None
    assert memory.recall("Ant-v5") == FOUND
    assert memory.warning is None


@pytest.mark.parametrize(
    "broken",
    [
        None,
        7,
        [],
        {},
        {**ENTRY, "samplers": 0},
        {**ENTRY, "samplers": -3},
        {**ENTRY, "samplers": True},
        {**ENTRY, "samplers": 10**40},
        {**ENTRY, "batch_size": 256.0},
        {**ENTRY, "batch_size": "256"},
        {**ENTRY, "envs_per_sampler": None},
        {**ENTRY, "learner_threads": [1]},
        {**ENTRY, "pinned": 1},
        {**ENTRY, "kept_at": "yesterday"},
        {**ENTRY, "kept_at": float("nan")},
        {**ENTRY, "kept_at": True},
        {name: value for name, value in ENTRY.items() if name != "learner_threads"},
    ],
    ids=str,
)
def test_broken_entry_is_a_warning_and_leaves_the_others(path: Path, broken: Any) -> None:
    memory = Memory(write(path, json.dumps({"Ant-v5": broken, "Hopper-v5": ENTRY}).encode()))
    assert memory.recall("Ant-v5") is None
    assert memory.warning is not None
    assert str(path) in memory.warning
    assert "delete" in memory.warning
    assert memory.recall("Hopper-v5") == FOUND
    assert memory.warning is None
    memory.keep("Walker2d-v5", OTHER)
    assert json.loads(path.read_text()).keys() == {"Hopper-v5", "Walker2d-v5"}


def test_warning_says_what_is_wrong(path: Path) -> None:
    memory = Memory(write(path, json.dumps({"Ant-v5": {**ENTRY, "samplers": 0}}).encode()))
    memory.recall("Ant-v5")
    assert memory.warning == (f"{path} cannot be used (samplers is 0): starting from defaults; delete this file")


@given(content=st.binary() | json_values.map(lambda value: json.dumps({"key": value}).encode()))
def test_no_content_of_the_file_raises(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory(write(Path(folder) / "settings.json", content))
        recalled = memory.recall("key")
        assert recalled is None or recalled == RunSettings(*recalled)
        memory.keep("other", FOUND)
        assert memory.recall("other") == FOUND


# --- where nothing can be kept ---------------------------------------------------------------------------------


def assert_not_kept(memory: Memory) -> None:
    memory.keep("Ant-v5", FOUND)
    assert memory.warning is not None
    assert str(memory.path) in memory.warning
    assert "not remembered" in memory.warning
    assert "\n" not in memory.warning
    assert memory.recall("Ant-v5") is None


def test_file_in_place_of_the_folder_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("mine")
    memory = Memory(tmp_path / "cache" / "spreeze" / "settings.json")
    assert memory.recall("Ant-v5") is None
    assert memory.warning is None
    assert_not_kept(memory)
    assert (tmp_path / "cache").read_text() == "mine"


def test_folder_in_place_of_the_file_is_a_warning(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "mine").touch()
    memory = Memory(path)
    assert memory.recall("Ant-v5") is None
    assert memory.warning is not None
    assert_not_kept(memory)
    assert names(path.parent) == ["settings.json"]  # nothing written aside stays
    assert names(path) == ["mine"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_permission_is_a_warning(path: Path) -> None:
    path.parent.mkdir(mode=0o500)
    assert_not_kept(Memory(path))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_folder_that_cannot_be_made_is_a_warning() -> None:
    assert_not_kept(Memory(Path("/proc/spreeze/settings.json")))


def test_full_disk_is_a_warning_and_leaves_the_file(path: Path) -> None:
    Memory(path).keep("Hopper-v5", OTHER)
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from spreeze.adapt.remember import Memory, RunSettings\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "memory = Memory(Path(sys.argv[1]))\n"
        "memory.keep('Ant-v5', RunSettings(1, 1, 1, 1))\n"
        "print(memory.warning)\n"
    )
    said = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, check=True, text=True)
    assert f"{path} cannot be written (File too large)" in said.stdout
    assert Memory(path).recall("Hopper-v5") == OTHER
    assert names(path.parent) == ["settings.json"]


def test_user_without_a_home_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    memory = Memory()
    assert memory.recall("Ant-v5") is None
    assert memory.warning is None
    memory.keep("Ant-v5", FOUND)
    assert memory.warning is not None
    assert "XDG_CACHE_HOME" in memory.warning


@pytest.mark.parametrize(
    ("cache", "expected"),
    [
        ("/somewhere", "/somewhere/spreeze/settings.json"),
        ("", "/home/me/.cache/spreeze/settings.json"),
        ("relative", "/home/me/.cache/spreeze/settings.json"),
        (None, "/home/me/.cache/spreeze/settings.json"),
    ],
)
def test_file_lies_in_the_cache_folder(monkeypatch: pytest.MonkeyPatch, cache: str | None, expected: str) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if cache is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", cache)
    assert Memory().path == Path(expected)


# --- keys ------------------------------------------------------------------------------------------------------

MACHINE = Machine(16, 2**36, (Gpu("H200", 2**37), Gpu("A100", 2**36)))
TASK: dict[str, Any] = {
    "machine": MACHINE,
    "env": "Ant-v5",
    "env_kwargs": '{"a": 1}',
    "algo": "sac",
    "device": "cuda",
    "hidden": (256, 128),
}


@pytest.fixture
def cpu_info(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nmodel name\t: AMD EPYC 9654\n\nprocessor\t: 1\nmodel name\t: AMD EPYC 9654\n")
    monkeypatch.setattr(hardware, "_CPU_INFO", path)
    return path


@pytest.mark.usefixtures("cpu_info")
def test_key_says_version_hardware_and_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remember, "VERSION", "1.2.3")
    key = machine_key(**TASK)
    assert key == 'spreeze 1.2 | 16 cores of AMD EPYC 9654 | cuda H200 | Ant-v5 {"a": 1} | sac 256x128'
    monkeypatch.setattr(remember, "VERSION", "1.2.4")
    assert machine_key(**TASK) == key
    monkeypatch.setattr(remember, "VERSION", "1.3.0")
    assert machine_key(**TASK) != key


@pytest.mark.parametrize(
    "change",
    [
        {"machine": Machine(8, 2**36, MACHINE.gpus)},
        {"machine": Machine(16, 2**36, MACHINE.gpus[1:])},
        {"env": "Hopper-v5"},
        {"env_kwargs": ""},
        {"algo": "td3"},
        {"device": "cpu"},
        {"device": "cuda:1"},
        {"hidden": (256, 256)},
    ],
)
def test_key_depends_on_all_that_settings_depend_on(change: dict[str, Any]) -> None:
    assert machine_key(**{**TASK, **change}) != machine_key(**TASK)


def test_key_leaves_out_what_settings_do_not_depend_on() -> None:
    less_free = Machine(16, 2**30, MACHINE.gpus)
    assert machine_key(**{**TASK, "machine": less_free}) == machine_key(**TASK)
    on_cpu = {**TASK, "device": "cpu"}
    assert machine_key(**{**on_cpu, "machine": Machine(16, 2**36, ())}) == machine_key(**on_cpu)


def test_key_depends_on_the_processor(cpu_info: Path) -> None:
    key = machine_key(**TASK)
    cpu_info.write_text(cpu_info.read_text().replace("EPYC", "Ryzen"))
    assert machine_key(**TASK) != key
    cpu_info.unlink()
    assert " | 16 cores of " in machine_key(**TASK)  # as on systems without such a file


def test_remembering_needs_neither_torch_nor_numpy() -> None:
    program = "import sys, spreeze.adapt.remember\nprint(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    ).stdout.split()
    assert "spreeze.adapt.remember" in loaded
    assert not {"torch", "numpy"} & set(loaded)


# --- times of an update -------------------------------------------------------------------------------------------

TIMES = UpdateTimes(8192, 322.5, 163.0, 176.0, 289.0, 871_484, 64)


def test_parts_are_recalled_by_gpus_and_networks(path: Path) -> None:
    two, other = (Machine(cores=8, memory_bytes=2**34, gpus=(Gpu(name, 2**34),) * 2) for name in ("A", "B"))
    UpdateTimesMemory(path).keep(update_times_key(two, "sac", (256, 256)), TIMES)
    memory = UpdateTimesMemory(path)
    assert memory.recall(update_times_key(two, "sac", (256, 256))) == TIMES
    assert memory.recall(update_times_key(two, "sac", (64, 64))) is None
    assert memory.recall(update_times_key(two, "td3", (256, 256))) is None
    assert memory.recall(update_times_key(other, "sac", (256, 256))) is None


@pytest.mark.parametrize(
    "change", [{"critic_us": 0}, {"whole_us": "1"}, {"exchange_updates": True}, {"actor_us": None}]
)
def test_broken_parts_are_ignored_with_a_warning(path: Path, change: dict[str, Any]) -> None:
    memory = UpdateTimesMemory(
        write(path, json.dumps({"key": {**TIMES._asdict(), "kept_at": 1.0, **change}}).encode())
    )
    assert memory.recall("key") is None
    assert memory.warning is not None
    assert next(iter(change)) in memory.warning


def test_parts_of_two_gpus_are_found_where_settings_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one, two = (Machine(cores=8, memory_bytes=2**34, gpus=(Gpu("A", 2**34),) * count) for count in (1, 2))
    for machine in (one, two):
        UpdateTimesMemory().keep(update_times_key(machine, "sac", (256, 256)), TIMES)
    assert UpdateTimesMemory().path.parent == Memory().path.parent
    assert recall_update_times(two, "sac", (256, 256)) == TIMES
    assert recall_update_times(one, "sac", (256, 256)) is None  # a single GPU is never split: nothing to recall


def test_a_file_without_end_is_not_read(path: Path) -> None:
    os.truncate(write(path, b"{"), 1 << 40)  # a hole, which takes no room on the disk
    memory = Memory(path)
    assert memory.recall("Ant-v5") is None
    assert memory.warning is not None
    assert "more than" in memory.warning
