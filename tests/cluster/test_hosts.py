"""The hosts of these tests: separate machines as far as a program can see, of which nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from hosts import Host, Hosts

ECHO = """
import socket
echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
echo.bind(("", 5000))
print("ready", flush=True)
while True:
    echo.sendto(*echo.recvfrom(100))
"""
ASK = """
import socket, sys, time
asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asking.settimeout(float(sys.argv[2]))
began = time.monotonic()
asking.sendto(b"anybody there?", (sys.argv[1], 5000))
try:
    asking.recv(100)
    print(time.monotonic() - began)
except TimeoutError:
    print("silence")
"""
HOLD = """
import sys
from hosts import Hosts
with Hosts() as hosts:
    for name in ("one", "other"):
        hosts.add(name).start("sleep", "1000")
    one, other = hosts.hosts
    one.lengthen(1.0)
    print(hosts.switch_pid, *(process.pid for host in hosts.hosts for process in host.processes()), flush=True)
    {then}
"""


@pytest.fixture(scope="module")
def pair(hosts: Hosts) -> tuple[Host, Host]:
    """Two hosts, of which the second answers."""
    one, other = hosts.add("one"), hosts.add("other")
    echo = other.start(sys.executable, "-c", ECHO, stdout=subprocess.PIPE)
    assert echo.stdout is not None
    assert echo.stdout.readline() == b"ready\n"
    return one, other


def ask(one: Host, other: Host, patience_s: float = 10.0) -> str:
    return one.run(sys.executable, "-c", ASK, other.address, str(patience_s)).strip()


def test_hosts_have_names_and_see_each_other(pair: tuple[Host, Host]) -> None:
    one, other = pair
    assert [host.run("hostname").strip() for host in pair] == ["one", "other"]
    assert ask(one, other) != "silence"


def test_a_cut_is_a_cut_until_it_is_restored(pair: tuple[Host, Host]) -> None:
    one, other = pair
    one.cut()
    assert ask(one, other, patience_s=0.3) == "silence"
    one.restore()
    assert ask(one, other) != "silence"


def test_a_long_cable_takes_its_time_and_can_be_cut(hosts: Hosts, pair: tuple[Host, Host]) -> None:
    far, (_, other) = hosts.add("far"), pair
    far.limit("1gbit")
    far.lengthen(round_trip_ms=40.0)
    ask(far, other)  # who has which address is asked once, which takes another round trip
    assert float(ask(far, other)) >= 0.04
    far.cut()
    assert ask(far, other, patience_s=0.3) == "silence"
    far.restore()
    assert ask(far, other) != "silence"


def test_a_host_sees_its_own_processes_and_memory_alone(pair: tuple[Host, Host], tmp_path: Path) -> None:
    one, other = pair
    sleeper = one.start("sleep", "1234")
    seen = "import pathlib, psutil; print(any('1234' in p.cmdline() for p in psutil.process_iter()))"
    assert [host.run(sys.executable, "-c", seen).strip() for host in pair] == ["True", "False"]
    for folder in ("/dev/shm", "/run"):
        one.run("touch", f"{folder}/{tmp_path.name}")
        assert not (Path(folder) / tmp_path.name).exists()
        assert tmp_path.name not in other.run("ls", folder)
    assert one.kill("sleep 1234") == 1
    assert sleeper.wait(10) != 0
    assert one.processes("sleep") == []


def test_a_host_that_died_is_silent_and_can_be_started_again(hosts: Hosts, pair: tuple[Host, Host]) -> None:
    one, _ = pair
    mortal = hosts.add("mortal")
    for _ in range(2):
        echo = mortal.start(sys.executable, "-c", ECHO, stdout=subprocess.PIPE)
        assert echo.stdout is not None
        assert echo.stdout.readline() == b"ready\n"
        assert ask(one, mortal) != "silence"
        mortal.die()
        assert mortal.processes() == []
        assert echo.wait(10) != 0
        assert ask(one, mortal, patience_s=0.3) == "silence"
        mortal.boot()
        mortal.lengthen(1.0)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def terminate(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)


@pytest.mark.usefixtures("hosts")
@pytest.mark.parametrize(
    ("then", "how"),
    [("sys.stdin.read()", kill), ("sys.stdin.read()", terminate), ("raise ValueError", None), ("pass", None)],
)
def test_nothing_is_left_of_hosts_however_their_owner_ends(then: str, how: Callable[[int], None] | None) -> None:
    interfaces, mounts = network_interfaces(), Path("/proc/mounts").read_text()
    owner = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(then=then)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )
    assert owner.stdout is not None
    inside = [psutil.Process(int(word)) for word in owner.stdout.readline().split()]
    if how is not None:
        how(owner.pid)
    owner.communicate()
    _, alive = psutil.wait_procs(inside, 20)
    assert alive == []
    assert network_interfaces() == interfaces
    assert Path("/proc/mounts").read_text() == mounts


def network_interfaces() -> list[str]:
    return sorted(path.name for path in Path("/sys/class/net").iterdir())
