"""Hosts for tests and benchmarks: namespaces of this machine that a switch joins.

A host has an address, a name, processes, a /dev/shm and a /run of its own; Ray's files are in /run/ray. The switch
has no way to the network of this machine: no packet leaves it, and several may use the same addresses. Each host
lives as long as its first process, and all hosts as long as that of the switch, which ends with this process: then
the kernel ends every process on them and takes back links, mounts and shared memory, also after SIGKILL.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType

import psutil

NEEDED = ("ip", "nsenter", "setpriv", "tc", "unshare")
# Another user than root becomes root of what it makes, where the system allows it.
AS_ROOT = () if os.geteuid() == 0 else ("--user", "--map-root-user")
KINDS = ("--net", "--pid", "--mount", "--uts", "--ipc")
OWN = (*KINDS, "--fork", "--kill-child", "--mount-proc")
NETWORK = "10.77.0"
ADDRESS_OF_SWITCH = f"{NETWORK}.254"
RAY_PORT = 6379
LONG_LINK = Path(__file__).with_name("long_link.py")
STORE_BYTES = 128 * 2**20  # Ray refuses less than 75 MB; it lies in the host's /dev/shm
# Guards against a hang, not expectations.
READY_S, RAY_READY_S, GONE_S = 30.0, 180.0, 30.0

# Bash: it reaps what others leave to the first process of a host. It ends with its input.
SWITCH = """
set -e
mount -t tmpfs tmpfs /run
ip link set dev lo up
ip link add name br0 type bridge
ip address add {address}/24 dev br0
ip link set dev br0 up
echo ready
read -r || true
"""
HOST = """
set -e
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
hostname {name}
ip link set dev lo up
echo ready
read -r || true
"""
RAY_VARIABLES = {
    "RAY_TMPDIR": "/run",
    "TMPDIR": "/run",  # what is left there is left by a program of this host
    "RAY_USAGE_STATS_ENABLED": "0",
    # A head would ask for the token that some program has left in the home of whoever runs this.
    "RAY_AUTH_MODE": "disabled",
    "RAY_SCHEDULER_EVENTS": "0",
    # All hosts share one memory: what it has left says nothing about a host.
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_worker_niceness": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    # As docs/cluster.md advises: who is cut off is declared dead after 25 s, and knows it soon after it is back.
    "RAY_health_check_timeout_ms": "2000",
    "RAY_raylet_liveness_self_check_interval_ms": "5000",
    "RAY_grpc_client_keepalive_time_ms": "5000",
    "RAY_grpc_client_keepalive_timeout_ms": "5000",
    # Ray has its word with the terminal of whoever started it otherwise.
    "PYTHONUNBUFFERED": "1",
}


class HostsFailed(Exception):
    """Hosts cannot be made here, or one did not do what it was told to."""


@cache
def why_not() -> str | None:
    """Return why hosts cannot be made on this machine; None if they can."""
    if sys.platform != "linux":
        return "hosts are made of Linux namespaces"
    if missing := [program for program in NEEDED if shutil.which(program) is None]:
        return f"hosts need {', '.join(missing)} (Debian's iproute2 and util-linux)"
    tried = subprocess.run(["unshare", *AS_ROOT, *OWN, "true"], capture_output=True, text=True, check=False)
    return f"namespaces are not allowed here: {tried.stderr.strip()}" if tried.returncode else None


class Namespaces:
    """The first process of a set of namespaces."""

    def __init__(self, command: Sequence[str], script: str) -> None:
        # The kernel kills `unshare` with this process, and that its child. Where another user becomes root the first
        # of these is void, and the end of the input is what remains.
        self._outside = subprocess.Popen(
            [*command, "bash", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for whoever uses the hosts
        )
        assert self._outside.stdout is not None
        assert self._outside.stderr is not None
        if self._outside.stdout.readline() != "ready\n":
            raise HostsFailed(f"a host could not be made: {self._outside.stderr.read().strip()}")
        *_, first = psutil.Process(self._outside.pid).children(recursive=True)
        self.pid: int = first.pid
        self._first: psutil.Process = first

    def enter(self, *words: str) -> list[str]:
        """Return the command that runs these words inside, in the folder of this process."""
        return [*self._nsenter(*KINDS), "env", f"--chdir={Path.cwd()}", *words]

    def run(self, *words: str) -> str:
        """Run a program of this machine in the network alone; return what it prints."""
        command = [*self._nsenter("--net"), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=READY_S)
        if done.returncode:
            raise HostsFailed(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def processes(self) -> list[psutil.Process]:
        """Return all processes inside, but for the first and those that have ended."""
        try:
            namespace = Path(f"/proc/{self.pid}/ns/pid").readlink()
        except OSError:
            return []
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                inside = Path(f"/proc/{process.pid}/ns/pid").readlink() == namespace
                if inside and process.pid != self.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    @property
    def is_there(self) -> bool:
        """Whether it has not ended."""
        return self._outside.poll() is None

    def end(self) -> None:
        """End it, and with it everything inside."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._first.kill()
        # It ends by itself then. Who is killed here would leave its child to be reaped by the first of this machine.
        self._outside.communicate(timeout=GONE_S)

    def _nsenter(self, *which: str) -> list[str]:
        user = ("--user", "--preserve-credentials") if AS_ROOT else ()
        return ["nsenter", "--target", str(self.pid), *which, *user]


class Host:
    """A machine as others see it: one address, processes, memory."""

    def __init__(self, switch: Namespaces, name: str, number: int) -> None:
        self.name, self.address = name, f"{NETWORK}.{number}"
        self._switch, self._port = switch, f"port{number}"
        self._near = f"near{number}"
        self._card_address = f"02:00:0a:4d:00:{number:02x}"  # it keeps it: others remember whose address this is
        self._ray: subprocess.Popen[bytes] | None = None
        self._ray_words: tuple[str, ...] = ()
        self._ray_environment: Mapping[str, str] | None = None
        self._cable: subprocess.Popen[bytes] | None = None
        self._namespaces: Namespaces
        self.boot()

    # --- the machine ---

    def boot(self) -> None:
        """Start it, for the first time or after `die`."""
        self._plug = self._port
        inside = ("unshare", *OWN)
        self._namespaces = Namespaces(self._switch.enter(*inside), HOST.format(name=self.name))
        card = ("eth0", "address", self._card_address, "netns", str(self._namespaces.pid))
        self._switch.run("ip", "link", "add", "name", self._port, "type", "veth", "peer", "name", *card)
        self._switch.run("ip", "link", "set", "dev", self._port, "up")
        self.restore()
        self._namespaces.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self._namespaces.run("ip", "link", "set", "dev", "eth0", "up")
        # As on a machine with a network. The switch passes nothing on.
        self._namespaces.run("ip", "route", "add", "default", "via", ADDRESS_OF_SWITCH)

    def die(self) -> None:
        """End it as a power cut does: no process has a last word, and nobody answers at its address."""
        # First of all, or the ends of its connections would still be told. A cable ends with its interfaces.
        for interface in (self._port, *([self._near] if self._cable else [])):
            self._switch.run("ip", "link", "delete", "dev", interface)
        self._namespaces.end()
        for process in (self._ray, self._cable):
            if process is not None:
                process.wait(GONE_S)
                close_pipes(process)
        self._ray = self._cable = None

    @property
    def is_up(self) -> bool:
        """Whether it was started and has not died."""
        return self._namespaces.is_there

    # --- its link ---

    def cut(self) -> None:
        """Let all packets from and to it vanish; its own end looks as before."""
        self._switch.run("ip", "link", "set", "dev", self._plug, "nomaster")

    def restore(self) -> None:
        """Undo `cut`."""
        self._switch.run("ip", "link", "set", "dev", self._plug, "master", "br0")

    def limit(self, rate: str) -> None:
        """Limit the link to a rate, such as 1gbit, in each direction."""
        # The queue of a switch; bursts of what a host hands to its card at once.
        shaping = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "20ms")
        self._switch.run("tc", "qdisc", "replace", "dev", self._port, *shaping)
        self._namespaces.run("tc", "qdisc", "replace", "dev", "eth0", *shaping)

    def lengthen(self, round_trip_ms: float) -> None:
        """Put a long cable between it and the switch, until it dies."""
        self.cut()
        self._plug = self._near.replace("near", "far")
        self._switch.run("ip", "link", "add", "name", self._near, "type", "veth", "peer", "name", self._plug)
        for end in (self._near, self._plug):
            self._switch.run("ip", "link", "set", "dev", end, "up")
        words = (sys.executable, str(LONG_LINK), self._port, self._near, str(round_trip_ms / 2))
        self._cable = subprocess.Popen(self._switch.enter(*words), stdout=subprocess.PIPE)
        assert self._cable.stdout is not None
        if self._cable.stdout.readline() != b"ready\n":
            raise HostsFailed("a long cable could not be made: see the error above")
        self.restore()

    # --- its processes ---

    def start(self, *words: str, environment: Mapping[str, str] | None = None, **options: object) -> subprocess.Popen:
        """Start a program on it, in the folder of this process; it ends with the host. options: of Popen."""
        variables = {**os.environ, **RAY_VARIABLES, **(environment or {})}
        return subprocess.Popen(self._namespaces.enter(*words), env=variables, **options)  # type: ignore[call-overload]

    def run(self, *words: str, timeout_s: float = READY_S) -> str:
        """Run a program on it to its end; return what it prints."""
        process = self.start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            said, errors = process.communicate(timeout=timeout_s)
        finally:
            process.kill()
        if process.returncode:
            raise HostsFailed(f"{self.name}: {' '.join(words)}: {errors.strip()}")
        return str(said)

    def processes(self, text: str = "") -> list[psutil.Process]:
        """Return the processes on it with this text in their command line."""
        found = []
        for process in self._namespaces.processes():
            with contextlib.suppress(psutil.Error):
                if text in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def kill(self, text: str, number: int = signal.SIGKILL) -> int:
        """Send a signal to the processes with this text in their command line; return how many there were."""
        killed = 0
        for process in self.processes(text):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
                killed += 1
        return killed

    # --- Ray on it ---

    def begin_ray(
        self, head: Host | None = None, cpus: int = 1, *more: str, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start Ray, as the head or as one of a head's cluster. more: flags of `ray start`."""
        self._ray_environment = environment
        role = ("--head", f"--port={RAY_PORT}") if head is None else (f"--address={head.address}:{RAY_PORT}",)
        if head is None:
            role = (*role, "--include-dashboard=false")
        sizes = (f"--num-cpus={cpus}", f"--object-store-memory={STORE_BYTES}")
        self._ray_words = (*role, f"--node-ip-address={self.address}", *sizes, *more)
        self.restart_ray()

    def restart_ray(self) -> None:
        """Start Ray as it was started before; whatever is left of it ends first."""
        self.stop_ray()
        words = (sys.executable, "-m", "ray.scripts.scripts", "start", *self._ray_words, "--block")
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self._ray = self.start(*words, environment=self._ray_environment, **pipes)

    def revive_ray(self) -> bool:
        """Start Ray again if it has ended, as a service manager does; return whether it had.

        A node that the cluster took for dead ends when it hears of that, which is after a cut of some seconds.
        """
        if self._ray is None or self._ray.poll() is None:
            return False
        self.restart_ray()
        self.wait_for_ray()
        return True

    def wait_for_ray(self) -> None:
        """Wait until Ray says that it runs; start it again if it has ended, as a service manager does."""
        said, deadline = b"", time.monotonic() + RAY_READY_S
        while b"Ray runtime started" not in said:
            assert self._ray is not None
            assert self._ray.stdout is not None
            output, poll = self._ray.stdout.fileno(), select.poll()  # not select(): its numbers end at 1,024
            poll.register(output, select.POLLIN)
            if not poll.poll(1000 * max(0.0, deadline - time.monotonic())):
                raise HostsFailed(f"Ray did not start on {self.name}:\n{said.decode(errors='replace')}")
            if more := os.read(output, 65536):
                said += more
            else:  # on a busy machine a node may need longer than the 30 s for which Ray waits
                self.restart_ray()

    def stop_ray(self) -> None:
        """End Ray on it, with all that Ray has started."""
        if self._ray is None:
            return
        for text in ("ray.scripts.scripts", "/ray/", "ray::"):
            self.kill(text)
        wait_until_gone(self.processes("/ray/") + self.processes("ray::"))
        self._ray.wait(GONE_S)
        close_pipes(self._ray)
        self._ray = None

    def kill_raylet(self) -> None:
        """Kill the process that makes this host a part of the cluster."""
        assert self.kill("raylet/raylet")

    def kill_control_service(self) -> None:
        """Kill the cluster's control service, on the head."""
        assert self.kill("gcs/gcs_server")


class Hosts:
    """A switch and what is plugged into it."""

    def __init__(self) -> None:
        if reason := why_not():
            raise HostsFailed(reason)
        command = ("setpriv", "--pdeathsig", "KILL", "unshare", *AS_ROOT, *OWN)
        self._switch = Namespaces(command, SWITCH.format(address=ADDRESS_OF_SWITCH))
        self._numbers = itertools.count(1)
        self.hosts: list[Host] = []

    def __enter__(self) -> Hosts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for host in self.hosts:
            if host.is_up:
                host.die()
        self._switch.end()

    @property
    def switch_pid(self) -> int:
        """The first process of all."""
        return self._switch.pid

    def add(self, name: str) -> Host:
        """Plug in another host."""
        self.hosts.append(Host(self._switch, name, next(self._numbers)))
        return self.hosts[-1]

    def add_cluster(self, workers: int, cpus: int = 1, cpus_of_head: int = 0) -> list[Host]:
        """Plug in hosts with Ray on them: the head first, then those named worker1, worker2 and so on."""
        names = ("head", *(f"worker{number}" for number in range(1, workers + 1)))
        head, *others = added = [self.add(name) for name in names]
        head.begin_ray(cpus=cpus_of_head)
        head.wait_for_ray()
        for host in others:
            host.begin_ray(head, cpus)
        for host in others:
            host.wait_for_ray()
        return added


def close_pipes(process: subprocess.Popen[bytes]) -> None:
    """Let go of what a process has said."""
    if process.stdout is not None:
        process.stdout.close()


def wait_until_gone(processes: Sequence[psutil.Process]) -> None:
    """Wait for the end of processes that were killed."""
    _, alive = psutil.wait_procs(processes, GONE_S)
    if alive:
        raise HostsFailed(f"still there: {', '.join(' '.join(process.cmdline()) for process in alive)}")
